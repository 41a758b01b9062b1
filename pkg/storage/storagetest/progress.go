package storagetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// testProgress checks that a request for progress is answered with the current
// revision even if no key of the watch changed.
func testProgress(t *testing.T, h *harness) {
	w := h.watch(t, "/t/", h.create(t, "/t/a", "1")+1, clientv3.WithProgressNotify())
	revision := h.create(t, "/other", "1")
	if got := w.progress(t, h.client); got < revision {
		t.Errorf("progress to %d, want %d or later", got, revision)
	}
}

// progress asks until a progress notification comes. An etcd that has not yet
// opened the watch drops the request, which is why API servers repeat it too.
func (w *watcher) progress(t testing.TB, c *kubernetes.Client) int64 {
	t.Helper()
	deadline := time.After(w.patience)
	for {
		if err := c.RequestProgress(clientv3.WithRequireLeader(t.Context())); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-w.answers:
			if r.IsProgressNotify() {
				return r.Header.Revision
			}
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Fatal("no progress notification")
		}
	}
}

// testProgressOrder checks what consistent reads from a cache rely on: no event
// comes after a progress notification of its revision or a later one.
func testProgressOrder(t *testing.T, h *harness) {
	const events = 2000
	w := h.watch(t, "/t/", h.create(t, "/t/first", "1")+1, clientv3.WithProgressNotify())
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() {
		defer close(done)
		for i := range events {
			h.create(t, fmt.Sprintf("/t/%d", i), "1")
		}
	})
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			if err := h.client.RequestProgress(clientv3.WithRequireLeader(t.Context())); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer group.Wait()
	progressed := int64(0)
	for n := 0; n < events; {
		r := w.next(t)
		for _, e := range r.Events {
			if e.Kv.ModRevision <= progressed {
				t.Fatalf("%s comes after progress to %d", describe(e), progressed)
			}
		}
		n += len(r.Events)
		if r.IsProgressNotify() {
			progressed = r.Header.Revision
		}
	}
}
