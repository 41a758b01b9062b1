package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing/fstest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/test/program"
)

const (
	feedCRDs    = 100
	feedObjects = 50_000
)

// measureFeed measures what the lifecycle parts cost a server that does
// nothing: two servers in this process, one after the other, without and with
// them. What they cost is in this process's memory, so the storage is too.
func measureFeed(ctx context.Context, l *lab, t target) error {
	if s, ok := t.(*sailplane); !ok || s.storage != storageMemory {
		return nil
	}
	var cost [2]resting
	for i, parts := range []controlplane.Parts{{core.Namespaces{KeepDeleted: true}}, {core.Namespaces{}, lifecycle.GarbageCollection{}}} {
		var err error
		if cost[i], err = atRest(ctx, l, parts); err != nil {
			return err
		}
	}
	what := feedRow()
	l.results.add(phaseLifecycle, what+"goroutines", float64(cost[1].goroutines-cost[0].goroutines))
	l.results.add(phaseLifecycle, what+"heap B per object", (cost[1].heap-cost[0].heap)/feedObjects)
	l.results.add(phaseLifecycle, what+"CPU ms per minute", milliseconds(cost[1].cpu-cost[0].cpu)*60/l.idle.Seconds())
	return nil
}

func feedRow() string {
	return fmt.Sprintf("lifecycle parts, %d CRDs, %d objects: ", feedCRDs, feedObjects)
}

// resting is what a server has and does while nobody asks anything of it.
type resting struct {
	goroutines int
	heap       float64 // bytes
	cpu        time.Duration
}

func atRest(ctx context.Context, l *lab, parts controlplane.Parts) (cost resting, err error) {
	files := fstest.MapFS{}
	for i := range feedCRDs {
		b, err := yaml.Marshal(definition(fmt.Sprint("feed", i)).crd())
		if err != nil {
			return cost, err
		}
		files[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: b}
	}
	s, err := controlplane.New("feed").Storage(memory.Store{}).
		With(parts, core.ConfigMaps{}, crd.Definitions{FS: files}).Build()
	if err != nil {
		return cost, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		return cost, err
	}
	if err := populate(ctx, s.ClientConfig()); err != nil {
		return cost, err
	}
	if err := pause(ctx, settle); err != nil {
		return cost, err
	}
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	cost.goroutines, cost.heap = runtime.NumGoroutine(), float64(m.HeapAlloc)
	before, err := program.CPUTime(os.Getpid())
	if err != nil {
		return cost, err
	}
	if err := pause(ctx, l.idle); err != nil {
		return cost, err
	}
	after, err := program.CPUTime(os.Getpid())
	cost.cpu = after - before
	return cost, err
}

func populate(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = repeat(ctx, fillClients, feedObjects, func(ctx context.Context, _, i int) error {
		cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cm-", i)}}
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, cm, metav1.CreateOptions{})
		return err
	})
	return err
}
