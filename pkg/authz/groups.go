package authz

import (
	"errors"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Groups lets the members of some groups do everything, and has no opinion
// about anybody else, who is denied when no other part allows. It is the
// simplest authorizer that is not open to all.
type Groups struct {
	// Admins are the groups whose members may do everything. Empty:
	// system:masters only, who may in any case.
	Admins []string
}

// PartName implements the name errors use.
func (Groups) PartName() string { return "authz.Groups" }

// Install declares the authorizer.
func (g Groups) Install(p *controlplane.Plan) error {
	if slices.Contains(g.Admins, "") {
		return errors.New("field Admins: a group name is empty")
	}
	if len(g.Admins) > 0 {
		p.Authorize("groups", authorizerfactory.NewPrivilegedGroups(g.Admins...))
	}
	return nil
}
