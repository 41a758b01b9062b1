package kine

import (
	"sync"

	"github.com/k3s-io/kine/pkg/server"
)

// bounded is a driver whose work ends after what waits for it. kine's wait for
// events has no context: one that begins after the last poll never ends.
type bounded struct {
	server.Backend
	waits *waits
}

// WaitForSyncTo implements server.Backend.
func (b *bounded) WaitForSyncTo(revision int64) {
	if b.waits.begin() {
		defer b.waits.running.Done()
		b.Backend.WaitForSyncTo(revision)
	}
}

// waits counts waits for events, and lets none begin after the end.
type waits struct {
	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

func (w *waits) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.running.Add(1)
	}
	return !w.ended
}

func (w *waits) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.running.Wait()
}
