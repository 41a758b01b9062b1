package controlplane_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// gated is a storage with many ConfigMaps, whose lists wait until the gate is open.
type gated struct {
	controlplane.Storage
	objects int
	gate    chan struct{}
	lists   chan string // gets what is listed, for each list that begins
}

func (s *gated) Open() controlplane.Backend { return &gatedBackend{s.Storage.Open(), s} }

type gatedBackend struct {
	controlplane.Backend
	*gated
}

// Start implements controlplane.Backend.
func (b *gatedBackend) Start(ctx context.Context) error {
	if err := b.Backend.Start(ctx); err != nil {
		return err
	}
	c, err := b.Backend.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range b.objects {
		name := fmt.Sprintf("cm-%05d", i)
		value := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":%q}}`, name, name)
		if _, err := c.Put(ctx, "/registry/configmaps/default/"+name, value); err != nil {
			return err
		}
	}
	return nil
}

// Client implements controlplane.Backend.
func (b *gatedBackend) Client() (*clientv3.Client, error) {
	c, err := b.Backend.Client()
	if err == nil {
		c.KV = gatedKV{c.KV, b.gated}
	}
	return c, err
}

type gatedKV struct {
	clientv3.KV
	*gated
}

// GetStream implements clientv3.KV.
func (kv gatedKV) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	if strings.HasPrefix(key, "/registry/configmaps/") {
		op := clientv3.OpGet(key, opts...)
		kv.lists <- fmt.Sprintf("%s at %d, at most %d, keys only: %t", key, op.Rev(), op.Limit(), op.IsKeysOnly())
		select {
		case <-kv.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return kv.KV.GetStream(ctx, key, opts...)
}

// TestManyObjects: a start reads no resource with many objects; requests have all of
// them, from the moment on in which the server is ready.
func TestManyObjects(t *testing.T) {
	t.Parallel()
	storage := &gated{Storage: memory.Store{}, objects: 1500, gate: make(chan struct{}), lists: make(chan string, 100)}
	s, err := controlplane.New(t.Name()).Storage(storage).With(core.Namespaces{}, core.ConfigMaps{}).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	open := sync.OnceFunc(func() { close(storage.gate) })
	t.Cleanup(open)
	select {
	case <-storage.lists: // in the background, without a request
	case <-time.After(time.Minute):
		t.Fatal("the watch cache is not filled")
	}
	maps := client(t, s.ClientConfig()).CoreV1().ConfigMaps("default")
	written, err := maps.Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitAdded(t, maps, written.ResourceVersion, "b") // while the watch cache knows nothing
	open()
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list.Items); n != storage.objects+2 {
		t.Fatalf("a list has %d objects, want %d", n, storage.objects+2)
	}
	awaitAdded(t, maps, list.ResourceVersion, "c")
	awaitAdded(t, maps, written.ResourceVersion, "b") // from before the watch cache
}

// awaitAdded creates a ConfigMap, unless there is one, and waits until a watch from a
// resource version shows it first.
func awaitAdded(t *testing.T, maps corev1client.ConfigMapInterface, from, name string) {
	t.Helper()
	_, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if m, ok := e.Object.(*corev1.ConfigMap); e.Type != watch.Added || !ok || m.Name != name {
			t.Errorf("the first event after %s is %s %v, want ADDED %s", from, e.Type, e.Object, name)
		}
	case <-time.After(time.Minute):
		t.Errorf("no event after %s", from)
	}
}

// TestFewObjects: where there are few objects nobody reads them before somebody lists
// them.
func TestFewObjects(t *testing.T) {
	t.Parallel()
	storage := &gated{Storage: memory.Store{}, objects: 10, gate: make(chan struct{}), lists: make(chan string, 100)}
	close(storage.gate)
	s, err := controlplane.New(t.Name()).Storage(storage).With(core.Namespaces{}, core.ConfigMaps{}).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	maps := client(t, s.ClientConfig()).CoreV1().ConfigMaps("default")
	if _, err := maps.Get(t.Context(), "cm-00001", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := len(storage.lists); n > 0 {
		t.Errorf("%d lists before anybody asked", n)
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != storage.objects {
		t.Errorf("a list has %d objects (%v), want %d", len(list.Items), err, storage.objects)
	}
	var listed []string
	for range len(storage.lists) {
		listed = append(listed, <-storage.lists)
	}
	if len(listed) != 1 {
		t.Errorf("the storage was listed %d times, want once: %q", len(listed), listed)
	}
}
