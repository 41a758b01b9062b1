// Command planes starts planes in one process, all of which run, and says what
// each cost: a line of JSON for each. Each is the plane of a server of its own, or,
// with -added, all but the first are added to the first one's server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func main() {
	n := flag.Int("n", 1, "how many planes to start, one after the other")
	added := flag.Bool("added", false, "add planes to one server, in place of starting servers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(klog.NewContext(ctx, logr.Discard()), *n, *added)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "planes:", err)
		os.Exit(1)
	}
}

// cost is what the process has, and has done, when one more plane is ready.
type cost struct {
	// Milliseconds are those from the call of New until the plane was ready.
	Milliseconds float64 `json:"ms"`
	Heap         uint64  `json:"heap"` // bytes that live
	Goroutines   int     `json:"goroutines"`
}

func run(ctx context.Context, n int, added bool) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, n)
	running := 0
	defer func() {
		cancel()
		for range running {
			err = errors.Join(err, <-ended)
		}
	}()
	var first *controlplane.Server
	for i := range n {
		begun := time.Now()
		parts := []controlplane.Part{
			authz.RBAC{}, serviceaccount.Tokens{}, preset.Standard(), crd.Definitions{}, aggregator.APIServices{},
		}
		if added && first != nil {
			if _, err := first.Plane(ctx, fmt.Sprint("plane-", i), parts...); err != nil {
				return err
			}
			if err := say(time.Since(begun)); err != nil {
				return err
			}
			continue
		}
		server, err := controlplane.New(fmt.Sprint("plane-", i)).Storage(memory.Store{}).With(parts...).Build()
		if err != nil {
			return err
		}
		first = server
		go func() { ended <- server.Run(ctx) }()
		running++
		select {
		case <-server.Ready():
		case err := <-ended:
			running--
			return errors.Join(err, errors.New("a plane ended"))
		}
		if err := say(time.Since(begun)); err != nil {
			return err
		}
	}
	// Whoever started the program reads what is resident, then ends it.
	<-ctx.Done()
	return nil
}

func say(took time.Duration) error {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return json.NewEncoder(os.Stdout).Encode(cost{
		Milliseconds: float64(took) / float64(time.Millisecond), Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine(),
	})
}
