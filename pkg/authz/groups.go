package authz

import (
	"errors"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Groups lets the members of some groups do everything, and has no opinion
// about anybody else. Members of system:masters may do everything without it,
// and what no part allows is refused.
type Groups struct {
	// Admins are the groups whose members may do everything. Empty: none, and the
	// part adds nothing.
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
