package fairness

import (
	"context"
	"sync"
	"time"
)

const (
	// refusalPause is how long a refusal is held back: less than any client is told to wait,
	// and long enough that who asks again at once costs little.
	refusalPause = 100 * time.Millisecond
	// heldRefusals is how many refusals are held back for a user, or the service accounts of
	// a namespace, and allHeldRefusals for all: each holds memory. Others come at once.
	heldRefusals, allHeldRefusals = 64, 1024
)

// pauses hold back refusals, of requests that take nothing from others while they wait.
type pauses struct {
	mu   sync.Mutex
	held map[string]int // by caller; who has none takes no memory
	all  int
}

func newPauses() *pauses { return &pauses{held: map[string]int{}} }

// hold returns after a pause, when the request ends, or at once if too many are held.
func (p *pauses) hold(ctx context.Context, name string) {
	if !p.begin(name) {
		return
	}
	defer p.end(name)
	t := time.NewTimer(refusalPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (p *pauses) begin(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[name] >= heldRefusals || p.all >= allHeldRefusals {
		return false
	}
	p.held[name]++
	p.all++
	return true
}

func (p *pauses) end(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.held[name]--; p.held[name] == 0 {
		delete(p.held, name)
	}
}
