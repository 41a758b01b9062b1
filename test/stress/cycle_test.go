package stress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// cycles is how often a server is started and stopped: 50 in all, over all storages.
func cycles() int { return (50 + len(stores()) - 1) / len(stores()) }

// TestCyclesLeaveNothing starts and stops a server many times. Afterwards no
// goroutine, no file beyond the storage's own and no heap is left of them.
func TestCyclesLeaveNothing(t *testing.T) {
	for name, s := range stores() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			once := func() {
				l := serve(t, build(t, "cycle", s.at(dir)))
				if _, err := l.configMaps(t).Create(t.Context(), configMap(fmt.Sprintf("cm-%d", rand.Int64()), "x"), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
				l.mustStop()
			}
			// What is computed once per process and shared is not a leak.
			once()
			once()
			check := noLeakAtAll(t)
			before, begun := heap(), time.Now()
			for range cycles() {
				once()
			}
			took := time.Since(begun)
			check()
			after := heap()
			grown := (int64(after) - int64(before)) / int64(cycles())
			t.Logf("%d cycles, %v each; heap %d KiB before, %d KiB after: %d B per cycle", cycles(), (took / time.Duration(cycles())).Round(time.Millisecond), before>>10, after>>10, grown)
			if grown > 100<<10 {
				t.Errorf("the heap grew by %d KiB per cycle", grown>>10)
			}
			s.onlyOwnFiles(t, dir)
		})
	}
}

// TestTwoServersAtOnce runs two servers in one process, which start and stop
// at the same time while clients write to both. Neither sees the other's objects.
func TestTwoServersAtOnce(t *testing.T) {
	for name, s := range stores() {
		t.Run(name, func(t *testing.T) {
			defer noLeak(t)()
			for round := range 3 {
				var both sync.WaitGroup
				for _, who := range []string{"left", "right"} {
					dir := t.TempDir()
					both.Go(func() {
						if err := writeAndStop(t, build(t, who, s.at(dir)), who); err != nil {
							t.Errorf("round %d: %s: %v", round, who, err)
						}
					})
				}
				both.Wait()
			}
		})
	}
}

// writeAndStop runs a server, writes to it from several clients, checks that
// it holds what was written and nothing else, and stops it under load.
func writeAndStop(t *testing.T, s *controlplane.Server, who string) error {
	l := run(t, s)
	defer l.stop() //nolint:errcheck // a second stop; the first one below reports
	if err := l.ready(); err != nil {
		return err
	}
	cms := l.configMaps(t)
	var writers sync.WaitGroup
	errs := make(chan error, 4)
	for i := range 4 {
		writers.Go(func() {
			for j := range 10 {
				_, err := cms.Create(context.Background(), configMap(fmt.Sprintf("%s-%d-%d", who, i, j), who), metav1.CreateOptions{})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	writers.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	list, err := cms.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != 40 {
		return fmt.Errorf("%d objects, want 40", len(list.Items))
	}
	for _, cm := range list.Items {
		if cm.Data["value"] != who {
			return fmt.Errorf("object %s of %q is in the server of %q", cm.Name, cm.Data["value"], who)
		}
	}
	_, err = l.stop()
	return err
}

// TestStopWhileStarting ends the context at a random moment of the start. The
// server stops, soon, without an error, and leaves nothing.
func TestStopWhileStarting(t *testing.T) {
	for name, s := range stores() {
		t.Run(name, func(t *testing.T) {
			serve(t, build(t, "warm", s.at(t.TempDir()))).mustStop()
			dir := t.TempDir()
			check := noLeak(t)
			var longest time.Duration
			for i := range 20 {
				after := time.Duration(rand.Int64N(int64(100 * time.Millisecond)))
				if i == 0 {
					after = 0
				}
				l := run(t, build(t, "brief", s.at(dir)))
				time.Sleep(after)
				took, err := l.stop()
				if err != nil {
					t.Errorf("stopped %v after the start: %v", after, err)
				}
				longest = max(longest, took)
			}
			t.Logf("the longest stop took %v", longest.Round(time.Millisecond))
			check()
			// The storage is as usable as before.
			l := serve(t, build(t, "after", s.at(dir)))
			if _, err := l.configMaps(t).Create(t.Context(), configMap("after", "x"), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			l.mustStop()
			check()
		})
	}
}
