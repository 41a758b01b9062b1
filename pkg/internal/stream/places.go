package stream

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
)

// MostOpen is how many streams of one sub-resource a user may have open; the service
// accounts of a namespace count together.
const MostOpen = 256

// Places counts the open streams of a sub-resource. Its zero value is ready.
type Places struct {
	mu   sync.Mutex
	open map[string]int // by caller
}

// Take counts a stream until leave is called, or refuses it with 429.
func (p *Places) Take(u user.Info) (leave func(), err error) {
	who := ""
	if u != nil {
		who = callers.Of(u.GetName())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[who] == MostOpen {
		const retryAfter = 10 // seconds
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("%q has %d such streams open: close one of them first", who, MostOpen), retryAfter)
	}
	if p.open == nil {
		p.open = map[string]int{}
	}
	p.open[who]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.open[who]--; p.open[who] == 0 {
			delete(p.open, who)
		}
	}), nil
}
