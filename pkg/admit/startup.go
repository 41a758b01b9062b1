package admit

import (
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// startup exempts the plane's own writes until it is ready, such as the CRDs it
// was given. A webhook that does not answer, or a policy that denies, would
// otherwise keep a server from starting, and then nobody could delete it.
type startup struct {
	ready atomic.Pointer[<-chan struct{}]
}

// begin makes the exemption end when the plane is ready.
func (s *startup) begin(p *controlplane.Plane) {
	ready := p.Ready()
	s.ready.Store(&ready)
}

// passes tells whether a request comes from the starting plane.
func (s *startup) passes(a Attributes) bool {
	if a.GetUserInfo() == nil || a.GetUserInfo().GetName() != user.APIServerUser {
		return false
	}
	ready := s.ready.Load()
	if ready == nil {
		return true
	}
	select {
	case <-*ready:
		return false
	default:
		return true
	}
}
