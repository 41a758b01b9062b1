package stress

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	watches = 50
	writers = 20
	// stopUnderLoad bounds a stop while watches and writers run: the 5 s that
	// watches get to end, and much for a slow machine. It is less than the minute
	// that requests get which nobody ends.
	stopUnderLoad = 45 * time.Second
)

// TestStopUnderLoad stops a server while clients watch and write. Watches end,
// the stop takes a bounded time, and what was acknowledged is there afterwards.
func TestStopUnderLoad(t *testing.T) {
	for name, s := range stores() {
		t.Run(name, func(t *testing.T) {
			serve(t, build(t, "warm", s.at(t.TempDir()))).mustStop()
			check := noLeak(t)
			dir := t.TempDir()
			l := serve(t, build(t, "loaded", s.at(dir)))
			seen, watching := watchAll(t, l)
			acked := writeUntilStopped(t, l, func() {
				awaitEvent(t, seen)
				if took := l.mustStop(); took > stopUnderLoad {
					t.Errorf("the stop took %v, want less than %v", took, stopUnderLoad)
				} else {
					t.Logf("the stop took %v", took.Round(time.Millisecond))
				}
			})
			wait(t, watching, "watches to end")
			t.Logf("%d objects acknowledged, %d events delivered", len(acked), seen.Load())
			check()
			if s.persistent {
				again := serve(t, build(t, "again", s.at(dir)))
				compare(t, again, acked)
				again.mustStop()
				check()
			}
		})
	}
}

// watchAll opens watches and counts what they see. They end with the server.
func watchAll(t *testing.T, l *life) (*atomic.Int64, *sync.WaitGroup) {
	t.Helper()
	seen, all := &atomic.Int64{}, &sync.WaitGroup{}
	for range watches {
		w, err := l.configMaps(t).Watch(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for e := range w.ResultChan() {
				seen.Add(1)
				if e.Type == watch.Error {
					t.Errorf("a watch ended with %v instead of its end", apierrors.FromObject(e.Object))
				}
			}
		})
	}
	return seen, all
}

// awaitEvent returns when a watch has seen something.
func awaitEvent(t *testing.T, seen *atomic.Int64) {
	t.Helper()
	for begun := time.Now(); seen.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Since(begun) > limit {
			t.Errorf("no watch saw an event in %v\n%s", limit, stacks())
			return
		}
	}
}

// writeUntilStopped writes from many clients, calls stop in the midst of it,
// and returns the last acknowledged value of every object.
func writeUntilStopped(t *testing.T, l *life, stop func()) map[string]string {
	t.Helper()
	acked := map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range writers {
		cms := l.configMaps(t)
		all.Go(func() {
			for j := 0; ; j++ {
				name := fmt.Sprintf("cm-%d-%d", i, j/5)
				cm := configMap(name, strconv.Itoa(j))
				var err error
				if j%5 == 0 {
					_, err = cms.Create(context.Background(), cm, metav1.CreateOptions{})
				} else {
					_, err = cms.Update(context.Background(), cm, metav1.UpdateOptions{})
				}
				if err != nil {
					// The write may have happened: nobody was told.
					mu.Lock()
					acked[name] += "?"
					mu.Unlock()
					return
				}
				mu.Lock()
				acked[name] = strconv.Itoa(j)
				mu.Unlock()
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	stop()
	wait(t, &all, "writers to see the end")
	return acked
}

// compare checks that a server holds what was acknowledged, and not older values.
func compare(t *testing.T, l *life, acked map[string]string) {
	t.Helper()
	list, err := l.configMaps(t).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, cm := range list.Items {
		have[cm.Name] = cm.Data["value"]
	}
	for name, want := range acked {
		value, uncertain := want, false
		if n := len(want); n > 0 && want[n-1] == '?' {
			value, uncertain = want[:n-1], true
		}
		got, found := have[name]
		switch {
		case got == value && found == (value != ""):
		case uncertain && found && later(got, value):
		default:
			t.Errorf("%s: value %q (found: %t), acknowledged was %q", name, got, found, want)
		}
	}
}

// later says whether got is the write that followed value, which nobody acknowledged.
func later(got, value string) bool {
	g, err := strconv.Atoi(got)
	if err != nil {
		return false
	}
	if value == "" {
		return g%5 == 0
	}
	v, err := strconv.Atoi(value)
	return err == nil && g == v+1
}

func wait(t *testing.T, all *sync.WaitGroup, what string) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); all.Wait() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("waited %v for %s\n%s", limit, what, stacks())
	}
}
