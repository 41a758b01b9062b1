package storagetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// harness is a running storage with one client.
type harness struct {
	suite     *suite
	described controlplane.Storage
	storage   controlplane.Backend
	client    *kubernetes.Client
}

// start runs a storage until the test ends.
func (s *suite) start(t testing.TB, d controlplane.Storage) *harness {
	t.Helper()
	b := d.Open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { stop(t, b) })
	h := s.with(t, b)
	h.described = d
	return h
}

// with returns a harness on a running storage with a new client.
func (s *suite) with(t testing.TB, b controlplane.Backend) *harness {
	t.Helper()
	return &harness{suite: s, storage: b, client: connect(t, b)}
}

// other returns a harness on the same storage with another client.
func (h *harness) other(t testing.TB) *harness {
	t.Helper()
	o := *h
	o.client = connect(t, h.storage)
	return &o
}

func stop(t testing.TB, s controlplane.Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// connect opens a client the way an API server uses it.
func connect(t testing.TB, s controlplane.Backend) *kubernetes.Client {
	t.Helper()
	c, err := s.Client()
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	k := &kubernetes.Client{Client: c}
	k.Kubernetes = k
	return k
}

func hangUp(t testing.TB, c *kubernetes.Client) {
	t.Helper()
	if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
}

// create writes a new key and returns its revision.
func (h *harness) create(t testing.TB, key, value string) int64 {
	t.Helper()
	return h.update(t, key, value, 0)
}

// update writes a key that has the revision given, a new one for 0.
func (h *harness) update(t testing.TB, key, value string, revision int64) int64 {
	t.Helper()
	r, err := h.client.OptimisticPut(t.Context(), key, []byte(value), revision,
		kubernetes.PutOptions{GetOnFailure: revision != 0})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	if !r.Succeeded {
		t.Fatalf("put %s at revision %d: refused", key, revision)
	}
	return r.Revision
}

// remove deletes a key that has the revision given.
func (h *harness) remove(t testing.TB, key string, revision int64) int64 {
	t.Helper()
	r, err := h.client.OptimisticDelete(t.Context(), key, revision, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
	if !r.Succeeded {
		t.Fatalf("delete %s at revision %d: refused", key, revision)
	}
	return r.Revision
}

// get reads a key, at a revision unless that is 0.
func (h *harness) get(t testing.TB, key string, revision int64) kubernetes.GetResponse {
	t.Helper()
	r, err := h.client.Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{Revision: revision})
	if err != nil {
		t.Fatalf("get %s at revision %d: %v", key, revision, err)
	}
	return r
}

// list reads the keys below a prefix.
func (h *harness) list(t testing.TB, prefix string, o kubernetes.ListOptions) kubernetes.ListResponse {
	t.Helper()
	r, err := h.client.List(t.Context(), prefix, o)
	if err != nil {
		t.Fatalf("list %s %+v: %v", prefix, o, err)
	}
	return r
}

// refused sends a write that expects another revision than the key has, checks
// that it is refused, and returns the answer.
func (h *harness) refused(t testing.TB, key string, revision int64) kubernetes.PutResponse {
	t.Helper()
	r, err := h.client.OptimisticPut(t.Context(), key, []byte("x"), revision, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil || r.Succeeded {
		t.Fatalf("put %s at revision %d: got %+v, %v, want a refusal", key, revision, r, err)
	}
	return r
}

// expectCount counts the keys below a prefix.
func (h *harness) expectCount(t testing.TB, prefix string, want int) {
	t.Helper()
	if n, err := h.client.Count(t.Context(), prefix, kubernetes.CountOptions{}); err != nil || n != int64(want) {
		t.Errorf("count: got %d, %v, want %d", n, err, want)
	}
}

// compact drops the history before a revision.
func (h *harness) compact(t testing.TB, revision int64) {
	t.Helper()
	if _, err := h.client.Compact(t.Context(), revision); err != nil {
		t.Fatalf("compact to revision %d: %v", revision, err)
	}
}

// pages reads the keys below a prefix in pages of the size given, or in one for
// 0, at the revision of the first page.
func (h *harness) pages(t testing.TB, prefix string, limit int64) iter.Seq[kubernetes.ListResponse] {
	return func(yield func(kubernetes.ListResponse) bool) {
		o := kubernetes.ListOptions{Limit: limit}
		for {
			page := h.list(t, prefix, o)
			if !yield(page) || page.Count <= int64(len(page.Kvs)) {
				return
			}
			o.Revision = cmp.Or(o.Revision, page.Revision)
			o.Continue = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
}

// inParallel runs a function n times at once, and waits until all have returned.
func inParallel(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

func expectSame(t testing.TB, what string, want, got []string) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func expectError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// watcher collects what a watch delivers.
type watcher struct {
	answers  clientv3.WatchChan
	cancel   context.CancelFunc
	patience time.Duration
}

// watch starts a watch as API servers do, of a prefix from a revision on.
func (h *harness) watch(t testing.TB, prefix string, revision int64, o ...clientv3.OpOption) *watcher {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(t.Context()))
	t.Cleanup(cancel)
	o = append([]clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithPrevKV()}, o...)
	return &watcher{answers: h.client.Watch(ctx, prefix, o...), cancel: cancel, patience: h.suite.patience}
}

// next returns the next answer.
func (w *watcher) next(t testing.TB) clientv3.WatchResponse {
	t.Helper()
	select {
	case r, ok := <-w.answers:
		if !ok {
			t.Fatal("the watch ended")
		}
		return r
	case <-time.After(w.patience):
		t.Fatal("the watch delivers nothing")
	}
	return clientv3.WatchResponse{}
}

// events returns the next n events and skips progress notifications.
func (w *watcher) events(t testing.TB, n int) []*clientv3.Event {
	t.Helper()
	var events []*clientv3.Event
	for len(events) < n {
		r := w.next(t)
		if err := r.Err(); err != nil {
			t.Fatalf("watch: %v", err)
		}
		events = append(events, r.Events...)
	}
	return events
}

// expectEnd waits until the watch has ended, and wants no more events.
func (w *watcher) expectEnd(t testing.TB) {
	t.Helper()
	deadline := time.After(w.patience)
	for {
		select {
		case r, ok := <-w.answers:
			if !ok {
				return
			}
			if len(r.Events) > 0 {
				t.Errorf("got %s, want the end of the watch", describe(r.Events[0]))
			}
		case <-deadline:
			t.Fatal("the watch does not end")
		}
	}
}

// describe returns an event in a form that tests compare.
func describe(e *clientv3.Event) string {
	what := "put"
	switch {
	case e.Type == clientv3.EventTypeDelete:
		what = "delete"
	case e.IsCreate():
		what = "create"
	}
	s := fmt.Sprintf("%s %s=%s at %d", what, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
	if e.PrevKv != nil {
		s += fmt.Sprintf(" was %s", e.PrevKv.Value)
	}
	return s
}

func describeAll(events []*clientv3.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, describe(e))
	}
	return all
}
