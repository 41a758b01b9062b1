package etcdapi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// patience bounds every wait of a test. It is only reached by a failure.
const patience = 2 * time.Minute

// connect starts a storage in memory and returns a client of it.
func connect(t testing.TB, s memory.Store) *clientv3.Client {
	t.Helper()
	b := s.Open()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func put(t testing.TB, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	r, err := c.Put(context.Background(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// receive returns the next n events of a watch.
func receive(t testing.TB, watch clientv3.WatchChan, n int) []*clientv3.Event {
	t.Helper()
	var events []*clientv3.Event
	for len(events) < n {
		select {
		case r, ok := <-watch:
			if err := r.Err(); err != nil || !ok {
				t.Fatalf("the watch ended after %d of %d events: %v", len(events), n, err)
			}
			events = append(events, r.Events...)
		case <-time.After(patience):
			t.Fatalf("the watch delivers %d of %d events", len(events), n)
		}
	}
	return events
}

// TestTransactions: what API servers do not send works as in etcd, too, or is
// refused.
func TestTransactions(t *testing.T) {
	t.Parallel()
	is := func(key string, revision int64) clientv3.Cmp {
		return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	}
	for name, tc := range map[string]struct {
		cmps         []clientv3.Cmp
		then, orElse []clientv3.Op
		succeeded    bool
		want         map[string]string
		err          error
	}{
		"several keys": {
			cmps: []clientv3.Cmp{is("/a", 2), is("/none", 0)}, then: []clientv3.Op{clientv3.OpPut("/a", "2"), clientv3.OpPut("/c", "1")},
			succeeded: true, want: map[string]string{"/a": "2", "/b": "1", "/c": "1"},
		},
		"one of several is wrong": {
			cmps: []clientv3.Cmp{is("/a", 2), is("/b", 2)}, then: []clientv3.Op{clientv3.OpPut("/a", "2")},
			orElse: []clientv3.Op{clientv3.OpPut("/else", "1"), clientv3.OpGet("/a")}, want: map[string]string{"/a": "1", "/b": "1", "/else": "1"},
		},
		"by value": {
			cmps: []clientv3.Cmp{clientv3.Compare(clientv3.Value("/a"), ">", "0")}, then: []clientv3.Op{clientv3.OpDelete("/b")},
			succeeded: true, want: map[string]string{"/a": "1"},
		},
		"by revision of creation": {
			cmps: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/none"), "!=", 0)}, then: []clientv3.Op{clientv3.OpDelete("/a")},
			want: map[string]string{"/a": "1", "/b": "1"},
		},
		"a range of keys": {
			then: []clientv3.Op{clientv3.OpDelete("/", clientv3.WithPrefix())}, succeeded: true, want: map[string]string{},
		},
		"only reads": {
			then: []clientv3.Op{clientv3.OpGet("/", clientv3.WithPrefix())}, succeeded: true, want: map[string]string{"/a": "1", "/b": "1"},
		},
		"a key twice": {
			then: []clientv3.Op{clientv3.OpPut("/a", "2"), clientv3.OpPut("/a", "3")},
			want: map[string]string{"/a": "1", "/b": "1"}, err: rpctypes.ErrDuplicateKey,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, memory.Store{})
			put(t, c, "/a", "1")
			put(t, c, "/b", "1")
			r, err := c.Txn(t.Context()).If(tc.cmps...).Then(tc.then...).Else(tc.orElse...).Commit()
			if !errors.Is(err, tc.err) {
				t.Fatalf("got error %v, want %v", err, tc.err)
			}
			if err == nil && r.Succeeded != tc.succeeded {
				t.Errorf("succeeded is %v", r.Succeeded)
			}
			all, err := c.Get(t.Context(), "/", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, kv := range all.Kvs {
				got[string(kv.Key)] = string(kv.Value)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhoHears: a change is heard by the watches of its key, of each of its
// prefixes and of any other span that has it, and by no other.
func TestWhoHears(t *testing.T) {
	t.Parallel()
	c := connect(t, memory.Store{})
	watches := map[string]clientv3.WatchChan{
		"key": c.Watch(t.Context(), "/a/b"), "prefix": c.Watch(t.Context(), "/a/", clientv3.WithPrefix()),
		"half a word": c.Watch(t.Context(), "/a/b", clientv3.WithPrefix()), "from": c.Watch(t.Context(), "/a/c", clientv3.WithFromKey()),
		"range": c.Watch(t.Context(), "/a/a", clientv3.WithRange("/a/bb")), "all": c.Watch(t.Context(), "", clientv3.WithPrefix()),
	}
	want := map[string][]string{
		"key": {"/a/b"}, "prefix": {"/a/b", "/a/bc", "/a/c"}, "half a word": {"/a/b", "/a/bc"}, "from": {"/a/c", "/b"},
		"range": {"/a/b"}, "all": {"/a", "/a/b", "/a/bc", "/a/c", "/b"},
	}
	for _, key := range []string{"/a", "/a/b", "/a/bc", "/a/c", "/b"} {
		put(t, c, key, "1")
	}
	for name, watch := range watches {
		var got []string
		for _, e := range receive(t, watch, len(want[name])) {
			got = append(got, string(e.Kv.Key))
		}
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWatchThatDoesNotRead: what waits for a watch is bounded. The rest it reads
// from the log when it goes on, in order and once.
func TestWatchThatDoesNotRead(t *testing.T) {
	t.Parallel()
	const events = 20_000 // several times what waits
	c := connect(t, memory.Store{})
	slow, quick := c.Watch(t.Context(), "/", clientv3.WithPrefix()), c.Watch(t.Context(), "/", clientv3.WithPrefix())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; n < events; {
			n += len((<-quick).Events)
		}
	}()
	for i := range events {
		put(t, c, fmt.Sprintf("/%d", i%10), "1")
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("a watch waits for another one that does not read")
	}
	var last int64 = 1
	for _, e := range receive(t, slow, events) {
		if e.Kv.ModRevision != last+1 {
			t.Fatalf("revision %d comes after %d", e.Kv.ModRevision, last)
		}
		last = e.Kv.ModRevision
	}
}

// TestWatchTooFarBehind: a watch whose history is dropped ends with the error that
// has API servers list again.
func TestWatchTooFarBehind(t *testing.T) {
	t.Parallel()
	c := connect(t, memory.Store{HistoryBytes: 64 << 10})
	watch := c.Watch(t.Context(), "/", clientv3.WithPrefix())
	for range 20_000 {
		put(t, c, "/a", "1")
	}
	for end := time.After(patience); ; {
		select {
		case r, ok := <-watch:
			if errors.Is(r.Err(), rpctypes.ErrCompacted) {
				return
			}
			if !ok {
				t.Fatal("the watch ended without the error")
			}
		case <-end:
			t.Fatal("the watch does not end")
		}
	}
}

// TestLease: what is put with a lease goes, not before its time, and what is put
// again without one stays.
func TestLease(t *testing.T) {
	t.Parallel()
	c := connect(t, memory.Store{})
	begun := time.Now()
	lease, err := c.Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"/goes", "/stays"} {
		if _, err := c.Put(t.Context(), key, "1", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	from := put(t, c, "/stays", "2")
	e := receive(t, c.Watch(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithRev(from+1)), 1)[0]
	if e.Type != clientv3.EventTypeDelete || string(e.Kv.Key) != "/goes" || time.Since(begun) < time.Second {
		t.Errorf("%s %s after %v, want that /goes is deleted after 1 s", e.Type, e.Kv.Key, time.Since(begun))
	}
	if r, err := c.Get(t.Context(), "/stays"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("/stays: %v, %v", r, err)
	}
	if _, err := c.Put(t.Context(), "/late", "1", clientv3.WithLease(lease.ID)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("a lease that has ended: got %v, want %v", err, rpctypes.ErrLeaseNotFound)
	}
}

// BenchmarkEvent measures a write and its event, with watches of other keys.
func BenchmarkEvent(b *testing.B) {
	for _, others := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			c := connect(b, memory.Store{})
			for i := range others {
				c.Watch(b.Context(), fmt.Sprintf("/registry/%d/", i), clientv3.WithPrefix())
			}
			watch := c.Watch(b.Context(), "/registry/watched/", clientv3.WithPrefix())
			for b.Loop() {
				put(b, c, "/registry/watched/a", "1")
				receive(b, watch, 1)
			}
		})
	}
}
