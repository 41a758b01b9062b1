package storagetest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/goleak"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// cycles is how often a storage is started and stopped to find what it leaves.
const cycles = 50

func testLifecycle(t *testing.T, open func() controlplane.Storage) {
	t.Run("stop before start", func(t *testing.T) {
		s := open().Open()
		if _, err := s.Client(); err == nil {
			t.Error("client before start: want an error")
		}
		stop(t, s)
		stop(t, s)
	})
	t.Run("start twice", func(t *testing.T) {
		h := start(t, open())
		if err := h.storage.Start(t.Context()); err == nil {
			t.Error("want an error")
		}
		h.create(t, "/t/a", "1")
	})
	t.Run("start ends with its context", func(t *testing.T) {
		s := open().Open()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Start(ctx); err == nil {
			t.Error("want an error")
		}
		stop(t, s)
	})
	t.Run("outlives the context of its start", func(t *testing.T) {
		s := open().Open()
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		cancel()
		h := &harness{storage: s, client: connect(t, s)}
		h.create(t, "/t/a", "1")
	})
	t.Run("stop ends forgotten watches", func(t *testing.T) {
		h := start(t, open())
		w := h.watch(t, "/t/", h.create(t, "/t/a", "1"))
		w.events(t, 1)
		stop(t, h.storage)
		w.expectEnd(t)
		if _, err := h.storage.Client(); err == nil {
			t.Error("client after stop: want an error")
		}
	})
}

// testCycles checks that starting and stopping leaves no goroutine and no open
// file behind.
func testCycles(t *testing.T, open func() controlplane.Storage) {
	d := open()
	n := 0
	once := func() {
		s := d.Open()
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := &harness{storage: s, client: connect(t, s)}
		forgotten := &harness{storage: s, client: connect(t, s)}
		n++
		w := h.watch(t, "/t/", h.create(t, fmt.Sprintf("/t/%d", n), "1"))
		w.events(t, 1)
		w.cancel()
		forgotten.watch(t, "/t/", 0)
		hangUp(t, h.client)
		stop(t, s)
	}
	once()
	before, files := goleak.IgnoreCurrent(), openFiles()
	for range cycles {
		once()
	}
	// What was told to end may take longer than goleak waits.
	left, now := goleak.Find(before), openFiles()
	for end := time.Now().Add(patience); (left != nil || len(now) > len(files)+2) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		left, now = goleak.Find(before), openFiles()
	}
	if left != nil {
		t.Error(left)
	}
	if len(now) > len(files)+2 {
		t.Errorf("%d open files before, now %d:\n%s", len(files), len(now), strings.Join(now, "\n"))
	}
}

// openFiles names the open files of the process where the system tells.
func openFiles() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			names = append(names, name)
		}
	}
	return names
}

func testRestart(t *testing.T, d controlplane.Storage) {
	const rounds, keys = 4, 200
	want := map[string]string{}
	var last int64
	for round := range rounds {
		s := d.Open()
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := &harness{storage: s, client: connect(t, s)}
		r := h.list(t, "/t/", kubernetes.ListOptions{})
		if r.Revision < last {
			t.Errorf("round %d begins at revision %d, which was %d before", round, r.Revision, last)
		}
		got := map[string]string{}
		for _, kv := range r.Kvs {
			got[string(kv.Key)] = string(kv.Value)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: got %v, want %v", round, got, want)
		}
		if last > 0 {
			// History outlives the server too.
			e := h.watch(t, "/t/", last).events(t, 1)[0]
			if e.Kv.ModRevision != last {
				t.Errorf("watch from %d: got %s", last, describe(e))
			}
		}
		for i := range keys {
			key, value := fmt.Sprintf("/t/%d", i), fmt.Sprintf("%d in round %d", i, round)
			var revision int64
			if kv := h.get(t, key, 0).KV; kv != nil {
				revision = kv.ModRevision
			}
			last = h.put(t, key, value, revision)
			want[key] = value
		}
		stop(t, s)
	}
}

func testSecondServer(t *testing.T, d controlplane.Storage) {
	h := start(t, d)
	second := d.Open()
	begin := time.Now()
	err := second.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want an error that says it is in use", err)
	}
	if waited := time.Since(begin); waited > 30*time.Second { // else it waits until the first one ends
		t.Errorf("the error took %v, want it at once", waited)
	}
	stop(t, second)
	h.create(t, "/t/a", "1")
	stop(t, h.storage)
	third := start(t, d)
	if third.get(t, "/t/a", 0).KV == nil {
		t.Error("the third server does not find what the first wrote")
	}
}
