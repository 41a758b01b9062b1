//go:build unix

package etcdserve

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// interrupted: the endpoint ends while clients write and an informer watches, and is started at the same
// place. kube-apiserver goes on by itself, no write that was acknowledged is lost, and the informer has
// all of them.
func interrupted(t *testing.T, s *server, e *endpoint, end func(*endpoint, *testing.T)) {
	namespace := "interrupted-" + rand.String(5)
	c := s.namespace(t, namespace)
	informer := s.informer(t, namespace)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const writers, enough = 6, 60
	w := &writing{client: c}
	written := make(chan error, 1)
	go func() { written <- together(writers, func(i int) error { return w.run(ctx, i) }) }()
	w.await(t, enough)
	end(e, t)
	e.start(t)
	w.await(t, enough)
	w.stopped.Store(true)
	must(t, <-written)

	var want, got map[string]string
	want, _ = listed(t, c)
	until(t, "the informer has what a list has", func(context.Context) error {
		got = map[string]string{}
		for _, o := range informer.GetStore().List() {
			got[o.(*unstructured.Unstructured).GetName()] = o.(*unstructured.Unstructured).GetResourceVersion()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-list +informer):\n%s", diff)
		}
		return nil
	})
	w.check(t)
	t.Logf("%d writes failed", w.failed.Load())
}

// informer is one of the ConfigMaps of a namespace, which has begun.
func (s *server) informer(t *testing.T, namespace string) cache.SharedIndexInformer {
	t.Helper()
	stop := make(chan struct{})
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.dynamic, 0, namespace, nil)
	informer := factory.ForResource(configMaps()).Informer()
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	for _, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatal("the informer has not begun")
		}
	}
	return informer
}

// writing is writers that write until they are stopped, each write until it is acknowledged.
type writing struct {
	client               dynamic.ResourceInterface
	stopped              atomic.Bool
	failed, acknowledged atomic.Int64

	mu     sync.Mutex
	values map[string]string // acknowledged ones, by name
}

// run creates objects, and counts in one of its own.
func (w *writing) run(ctx context.Context, writer int) error {
	counter := fmt.Sprintf("counter-%d", writer)
	if err := w.create(ctx, counter, "-1"); err != nil {
		return err
	}
	for i := 0; !w.stopped.Load(); i++ {
		if err := w.create(ctx, fmt.Sprintf("object-%d-%d", writer, i), strconv.Itoa(i)); err != nil {
			return err
		}
		patch := fmt.Appendf(nil, `{"data": {"value": "%d"}}`, i)
		if err := w.write(ctx, counter, strconv.Itoa(i), func() error {
			_, err := w.client.Patch(ctx, counter, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (w *writing) create(ctx context.Context, name, value string) error {
	tried := false
	return w.write(ctx, name, value, func() error {
		_, err := w.client.Create(ctx, configMap(name, value), metav1.CreateOptions{})
		if tried && apierrors.IsAlreadyExists(err) {
			return nil // it was written, though nobody said so
		}
		tried = true
		return err
	})
}

// write tries a write until it is acknowledged.
func (w *writing) write(ctx context.Context, name, value string, do func() error) error {
	for begun := time.Now(); ; {
		err := do()
		if err == nil {
			break
		}
		if w.failed.Add(1); ctx.Err() != nil || time.Since(begun) > patience {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := behind.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.values == nil {
		w.values = map[string]string{}
	}
	w.values[name] = value
	w.acknowledged.Add(1)
	return nil
}

// await waits for n further writes.
func (w *writing) await(t *testing.T, n int64) {
	t.Helper()
	n += w.acknowledged.Load()
	until(t, "writes are acknowledged", func(context.Context) error {
		if got := w.acknowledged.Load(); got < n {
			return fmt.Errorf("%d of %d writes", got, n)
		}
		return nil
	})
}

// check compares the objects to what was acknowledged.
func (w *writing) check(t *testing.T) {
	t.Helper()
	list, err := w.client.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	got := map[string]string{}
	for _, o := range list.Items {
		got[o.GetName()], _, _ = unstructured.NestedString(o.Object, "data", "value")
	}
	if diff := cmp.Diff(w.values, got); diff != "" {
		t.Errorf("objects (-acknowledged +list):\n%s", diff)
	}
}
