package authn

import (
	"errors"
	"slices"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// ClientCA recognises callers by client certificates that authorities in a file
// signed: the common name is the user, the organizations are the groups. That
// includes system:masters: an authority can give every permission, unless Groups says
// otherwise. Set it if others than administrators decide what the authority signs. The part that
// brings the server's identity, such as [Admin], makes the listener ask for
// certificates; a listener of your own must ask for them and pass on the
// connection's.
type ClientCA struct {
	// File has the certificates of the authorities, PEM encoded. Changes take
	// effect within seconds, also for open connections; a file that cannot be
	// used changes nothing and is logged. Required.
	File string
	// Users are the users that the authorities may name: names, or the beginning of names
	// and "*". Names that begin with "system:" need a pattern that begins so. Who is another
	// user is refused. Empty: all, "system:" or not.
	Users []string
	// Groups are the groups that the authorities may name, with patterns as Users;
	// system:masters, which may do everything, needs its whole name. Who has another group,
	// too, is refused. []string{"*"} allows all but those of the system. Empty: all.
	Groups []string
	// RevokedFile has certificate revocation lists of the authorities, PEM encoded (RFC
	// 5280), as "openssl ca -gencrl" writes them. What they list is refused. It is followed as
	// File is, and may be empty. Lists of other authorities have no effect, and lists do not
	// end. Optional.
	RevokedFile string
}

// PartName implements the name errors use.
func (ClientCA) PartName() string { return "authn.ClientCA" }

// Install implements controlplane.Part.
func (ClientCA) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the authenticator and the work that follows the file.
func (c ClientCA) InstallServer(p *controlplane.ServerPlan) error {
	if c.File == "" {
		return errors.New("field File: is empty: name a PEM file with the authorities' certificates")
	}
	a := &authority{what: "client certificate authorities", file: c.File}
	if err := errors.Join(check.Patterns("Users", c.Users), check.Patterns("Groups", c.Groups)); err != nil {
		return err
	}
	known := a.clients(patterns(c.Users), patterns(c.Groups))
	a.install(p, "field File")
	if c.RevokedFile != "" {
		source := follow.Source{What: "revoked client certificates", File: c.RevokedFile}
		a.files = append(a.files, followed(p.Root(), "field RevokedFile", source, pki.ParseLists, a.revoke))
	}
	p.EachPlane(func(p *controlplane.Plan) {
		p.Authenticate(a.Name(), known)
	})
	return nil
}

// patterns are those of a field, nil where it is empty.
func patterns(field []string) []string {
	if len(field) == 0 {
		return nil
	}
	return slices.Clone(field)
}
