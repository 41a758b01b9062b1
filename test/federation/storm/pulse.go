package storm

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

const (
	// beat is how often the machine is looked at, and late from when on it counts as busy.
	beat = 10 * time.Millisecond
	late = 50 * time.Millisecond
)

// pulse knows when the machine itself had other things to do: a request that waited for the
// disk, or a processor, did not wait for a server.
type pulse struct {
	mu    sync.Mutex
	begun time.Time // of the beat that runs
	busy  []span    // the newest last
}

// span is a time in which a timer and a write to the disk took long.
type span struct{ from, to time.Time }

// beats looks until the context ends.
func (p *pulse) beats(ctx context.Context, dir string) error {
	f, err := os.Create(filepath.Join(dir, "pulse"))
	if err != nil {
		return err
	}
	defer f.Close()
	for p.start(); behind.Pause(ctx, beat) == nil; p.start() {
		if _, err := f.WriteAt([]byte("beat"), 0); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// start begins a beat, and notes the one before.
func (p *pulse) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.begun.IsZero() && now.Sub(p.begun) > late {
		p.busy = append(p.busy, span{p.begun, now})
		p.busy = p.busy[max(0, len(p.busy)-1000):]
	}
	p.begun = now
}

// since is for how long the machine was busy since then.
func (p *pulse) since(from time.Time) (d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, s := range p.busy {
		if s.to.After(from) {
			d += s.to.Sub(later(s.from, from))
		}
	}
	if now.Sub(p.begun) > late {
		d += now.Sub(later(p.begun, from))
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
