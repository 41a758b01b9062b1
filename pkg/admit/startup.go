package admit

import (
	"context"
	"net"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// startup passes what the plane itself writes until it is ready, such as the
// CRDs it was given. A webhook that does not answer, or a policy that denies,
// would otherwise keep a server from starting, and then nobody could delete it.
type startup struct{ over atomic.Bool }

// declare has the exemption end when the plane is ready.
func (s *startup) declare(p *controlplane.Plan, name string) {
	p.WhenReady("ask "+name, func(context.Context, net.Addr) error {
		s.over.Store(true)
		return nil
	})
}

// passes tells whether a request is one of the plane that starts.
func (s *startup) passes(a Attributes) bool {
	return !s.over.Load() && a.GetUserInfo() != nil && a.GetUserInfo().GetName() == user.APIServerUser
}
