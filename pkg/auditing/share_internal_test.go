package auditing

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
)

// stuck is a back end that waits, and counts what it got by user.
type stuck struct {
	begin chan struct{}
	mu    sync.Mutex
	got   map[string]int
}

func (*stuck) Run(<-chan struct{}) error { return nil }
func (*stuck) Shutdown()                 {}
func (*stuck) String() string            { return "stuck" }

func (s *stuck) ProcessEvents(events ...*auditinternal.Event) bool {
	<-s.begin
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.got[e.User.Username]++
	}
	return true
}

// TestBufferShares: while a buffer is not emptied, one caller and all strangers have a part of it,
// and the events of others are kept.
func TestBufferShares(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"log": false, "webhook": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := &stuck{begin: make(chan struct{}), got: map[string]int{}}
			lost := map[reason]int{}
			config := buffered.BatchConfig{MaxBatchSize: 1, AsyncDelegate: async}
			if async { // and nothing leaves the buffer but one batch
				config.MaxBatchSize, config.MaxBatchWait = 2*bufferSize, time.Hour
			}
			b := Batch.wrap(end, 0, config, func(_ *auditinternal.Event, why reason) { lost[why]++ })
			stop := make(chan struct{})
			if err := b.Run(stop); err != nil {
				t.Fatal(err)
			}
			for i := range 2 * bufferSize {
				b.ProcessEvents(of("", 401))
				b.ProcessEvents(of("ann", 201))
				b.ProcessEvents(of(fmt.Sprint("system:serviceaccount:a:", i%3), 201))
			}
			for range 100 {
				b.ProcessEvents(of("bob", 201))
			}
			if lost[stranger] < bufferSize || lost[caller] < bufferSize {
				t.Errorf("lost %v: want most of the flood", lost)
			}
			close(end.begin)
			close(stop)
			b.Shutdown()
			accounts := end.got["system:serviceaccount:a:0"] + end.got["system:serviceaccount:a:1"] + end.got["system:serviceaccount:a:2"]
			if end.got["bob"] != 100 {
				t.Errorf("%d events of bob, want all 100", end.got["bob"])
			}
			if n := end.got[""]; n < bufferSize/20 || n > bufferSize/strangerPlaces+1 {
				t.Errorf("%d events of strangers, want at most a tenth", n)
			}
			if n := end.got["ann"]; n < bufferSize/4 || n > bufferSize/2+1 || accounts < bufferSize/4 || accounts > bufferSize/2+1 {
				t.Errorf("%d events of ann, %d of the accounts of a namespace: want about a third", n, accounts)
			}
			s := b.(cutting).Backend.(entrance).shares //nolint:forcetypeassert // it is what wrap makes
			if s.all != 0 || len(s.held) != 0 {
				t.Errorf("%d places are held by %v after the end", s.all, maps.Collect(maps.All(s.held)))
			}
		})
	}
}
