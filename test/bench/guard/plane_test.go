//go:build !race

package guard

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/endpoints"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

const (
	planes = 4
	// still is for how long a number must not change, and stillWait how long that
	// may take. Reads that must be fresh leave a timer of 3 s behind.
	// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/cacher/watch_cache.go#L341
	still     = 4 * time.Second
	stillWait = 30 * time.Second
)

// TestGoroutines counts those that each further plane of a process has.
func TestGoroutines(t *testing.T) {
	plane := func(i int) { start(t, controlplane.New(fmt.Sprint("plane-", i)).With(parts())) }
	plane(0) // what is started once for all planes
	before := goroutines(t)
	for i := range planes {
		plane(i + 1)
	}
	check(t, budgets{"goroutines of a plane": float64(goroutines(t)-before) / planes})
}

// TestHeap counts what a server keeps that serves every stable type of Kubernetes,
// none of which anybody uses.
func TestHeap(t *testing.T) {
	start(t, controlplane.New("few").With(parts())) // what all servers share
	before := heap(t)
	all := parts()
	all[len(all)-1] = controlplane.Parts{kube.All(), core.Endpoints{}, endpoints.EndpointSlices{}} // instead of kube.FlowControl
	start(t, controlplane.New("all").With(all))
	check(t, budgets{"KiB of heap of a server with all kinds": (heap(t) - before) / 1024})
}

// heap is how many bytes are reachable when nothing starts any more.
func heap(t *testing.T) float64 {
	t.Helper()
	goroutines(t)
	runtime.GC()
	runtime.GC() // what the first one found dead may have kept more alive
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// goroutines is how many there are when their number does not change any more:
// a plane that has just become ready still ends what started it.
func goroutines(t *testing.T) int {
	t.Helper()
	n, since := runtime.NumGoroutine(), time.Now()
	for begun := since; time.Since(since) < still; time.Sleep(10 * time.Millisecond) {
		if now := runtime.NumGoroutine(); now != n {
			n, since = now, time.Now()
		}
		if time.Since(begun) > stillWait {
			t.Logf("the number of goroutines still changes after %v", stillWait)
			break
		}
	}
	return n
}
