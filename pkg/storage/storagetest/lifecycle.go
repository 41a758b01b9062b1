package storagetest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// cycles is how often a storage is started and stopped to find leaks.
const cycles = 50

func testLifecycle(t *testing.T, suite *suite) {
	open := suite.open
	t.Run("stop before start", func(t *testing.T) {
		s := open(t).Open()
		if _, err := s.Client(); err == nil {
			t.Error("client before start: want an error")
		}
		stop(t, s)
		stop(t, s)
	})
	t.Run("start twice", func(t *testing.T) {
		h := suite.start(t, open(t))
		if err := h.storage.Start(t.Context()); err == nil {
			t.Error("want an error")
		}
		h.create(t, "/t/a", "1")
	})
	t.Run("start ends with its context", func(t *testing.T) {
		s := open(t).Open()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Start(ctx); err == nil {
			t.Error("want an error")
		}
		stop(t, s)
	})
	t.Run("outlives the context of its start", func(t *testing.T) {
		s := open(t).Open()
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		cancel()
		h := suite.with(t, s)
		h.create(t, "/t/a", "1")
	})
	t.Run("stop ends forgotten watches", func(t *testing.T) {
		h := suite.start(t, open(t))
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
func testCycles(t *testing.T, suite *suite) {
	d := suite.open(t)
	n := 0
	once := func() {
		s := d.Open()
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := suite.with(t, s)
		forgotten := suite.with(t, s)
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
	// Goroutines may take longer to end than goleak waits.
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

// openFiles names the open files of the process, if the system tells.
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
