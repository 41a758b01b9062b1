// Package pauses holds back refusals, so that who asks again at once costs little.
package pauses

import (
	"context"
	"sync"
	"time"
)

// Length is how long a refusal is held back: less than any client is told to wait.
const Length = 100 * time.Millisecond

// Pauses are those of a server. What they hold back takes nothing from others but memory.
type Pauses struct {
	each, most int

	mu   sync.Mutex
	held map[string]int // by name; who has none takes no memory
	all  int
}

// New returns pauses that hold back so many refusals for each name, and for all. Others
// come at once.
func New(each, all int) *Pauses { return &Pauses{each: each, most: all, held: map[string]int{}} }

// Hold returns after a pause, when the context ends, or at once if too many are held.
func (p *Pauses) Hold(ctx context.Context, name string) {
	if !p.begin(name) {
		return
	}
	defer p.end(name)
	t := time.NewTimer(Length)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (p *Pauses) begin(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[name] >= p.each || p.all >= p.most {
		return false
	}
	p.held[name]++
	p.all++
	return true
}

func (p *Pauses) end(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.held[name]--; p.held[name] == 0 {
		delete(p.held, name)
	}
}
