package storage

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// stored is Kubernetes' store of example Pods on a storage of ours, without a
// watch cache before it and with one.
type stored struct {
	storage.Interface
	client      *kubernetes.Client
	codec       runtime.Codec
	transformer *replaceable
	cached      bool
	awaits      bool // see Create
	recorder    *storagetesting.KubernetesRecorder
}

// marked starts every stored value, as encryption would.
const marked = "test!"

// replaceable is a transformer that tests change while the store runs.
type replaceable struct {
	now atomic.Value // of current
}

// current makes transformers of any type one type.
type current struct{ value.Transformer }

func (r *replaceable) load() current { return r.now.Load().(current) }

// TransformFromStorage implements value.Transformer.
func (r *replaceable) TransformFromStorage(ctx context.Context, data []byte, d value.Context) ([]byte, bool, error) {
	return r.load().TransformFromStorage(ctx, data, d)
}

// TransformToStorage implements value.Transformer.
func (r *replaceable) TransformToStorage(ctx context.Context, data []byte, d value.Context) ([]byte, error) {
	return r.load().TransformToStorage(ctx, data, d)
}

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (s *stored) UpdatePrefixTransformer(change storagetesting.PrefixTransformerModifier) func() {
	before := s.transformer.load()
	copied := *before.Transformer.(*storagetesting.PrefixTransformer)
	s.transformer.now.Store(current{change(&copied)})
	return func() { s.transformer.now.Store(before) }
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

// resourcePrefix is where the tests of Kubernetes expect the Pods.
const resourcePrefix = "/pods/"

// newStored makes a store on a storage that runs until the test ends.
func newStored(t *testing.T, s controlplane.Storage) *stored {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &stored{client: start(t, s), transformer: &replaceable{}}
	r.codec = serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
	r.transformer.now.Store(current{storagetesting.NewPrefixTransformer([]byte(marked), false)})
	r.recorder = storagetesting.NewKubernetesRecorder(r.client.Kubernetes)
	r.client.Kubernetes = r.recorder
	versioner := storage.APIObjectVersioner{}
	compactor := etcd3.NewCompactor(r.client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	raw, err := etcd3.New(r.client, compactor, r.codec, newPod, newPodList, "", resourcePrefix,
		schema.GroupResource{Resource: "pods"}, r.transformer, etcd3.NewDefaultLeaseManagerConfig(),
		etcd3.NewDefaultDecoder(r.codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	r.Interface = raw
	return r
}

// soonClock has the watch cache look for compactions every few milliseconds, and
// not every 15 seconds.
type soonClock struct{ clock.RealClock }

// NewTimer implements clock.Clock.
func (soonClock) NewTimer(d time.Duration) clock.Timer {
	if d >= 10*time.Second {
		d = 20 * time.Millisecond
	}
	return &soonTimer{clock.RealClock{}.NewTimer(d)}
}

type soonTimer struct{ clock.Timer }

// Reset implements clock.Timer.
func (s *soonTimer) Reset(d time.Duration) bool {
	if d >= 10*time.Second {
		d = 20 * time.Millisecond
	}
	return s.Timer.Reset(d)
}

// named is a client with the endpoint that Kubernetes wants to ask for its version;
// one that calls a storage in this process has none.
type named struct{ *kubernetes.Client }

// Endpoints is what Kubernetes' feature checker asks for.
func (named) Endpoints() []string { return []string{"in-process"} }

// Status is what the storage says of itself.
func (n named) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	return n.Client.Status(ctx, endpoint)
}

// allowProgress has Kubernetes find out, once, that the storages answer requests
// for the progress of watches. The check runs in a goroutine of its own.
func allowProgress(t *testing.T, c *kubernetes.Client) {
	t.Helper()
	checker := feature.DefaultFeatureSupportChecker
	checker.CheckClient(t.Context(), named{c}, storage.RequestWatchProgress)
	for end := time.Now().Add(patience); !checker.Supports(storage.RequestWatchProgress); {
		if <-time.After(time.Millisecond); time.Now().After(end) {
			t.Fatal("the storage does not say that it has requests for the progress of watches")
		}
	}
}

// newCached puts a watch cache before a store, as API servers do.
func newCached(t *testing.T, s controlplane.Storage, keyFunc func(runtime.Object) (string, error)) *stored {
	t.Helper()
	r := newStored(t, s)
	raw := r.Interface
	allowProgress(t, r.client)
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             raw,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       schema.GroupResource{Resource: "pods"},
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             keyFunc,
		GetAttrsFunc:        podAttrs,
		NewFunc:             newPod,
		NewListFunc:         newPodList,
		Codec:               r.codec,
		Clock:               soonClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	delegator := cacher.NewCacheDelegator(c, raw)
	t.Cleanup(delegator.Stop)
	r.Interface, r.cached = delegator, true
	return r
}

// awaited tests create objects of which the cache has to know at once.
func awaited() []string {
	return []string{
		"SendInitialEventsBackwardCompatibility", "WatchSemantics", "WatchSemanticInitialEventsExtended", "WatchListMatchSingle",
	}
}

// Create stores an object and, where the test is one of those, waits until the
// cache has it, as Kubernetes does for them.
func (s *stored) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.Interface.Create(ctx, key, obj, out, ttl); err != nil || !s.cached || !s.awaits {
		return err
	}
	for end := time.Now().Add(patience); ; {
		err := s.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, newPod())
		if !storage.IsNotFound(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func namespaced(o runtime.Object) (string, error) { return storage.NamespaceKeyFunc(resourcePrefix, o) }

func clustered(o runtime.Object) (string, error) {
	return storage.NoNamespaceKeyFunc(resourcePrefix, o)
}

// podAttrs are the labels and fields by which the tests of Kubernetes select.
func podAttrs(o runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := o.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no Pod", o)
	}
	return pod.Labels, fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"status.phase": string(pod.Status.Phase),
	}, nil
}

// compact is a compaction that the store, and the cache before it, have noticed.
func (s *stored) compact(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	// The first one learns who compacted before.
	known, _, _, err := etcd3.Compact(ctx, s.client.Client, 0, int64(revision))
	if err != nil {
		if _, _, _, err = etcd3.Compact(ctx, s.client.Client, known, int64(revision)); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); !s.noticed(ctx, int64(revision)); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		if time.Now().After(end) {
			t.Fatalf("compaction to %d: it is not noticed; the store knows %d", revision, s.CompactRevision())
		}
	}
}

func (s *stored) noticed(ctx context.Context, revision int64) bool {
	if s.CompactRevision() != revision {
		return false
	}
	if !s.cached || revision < 2 {
		return true
	}
	// The cache has dropped what is older when it no longer answers with it.
	err := s.GetList(ctx, resourcePrefix, storage.ListOptions{
		ResourceVersion: fmt.Sprint(revision - 1), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		Predicate: storage.Everything, Recursive: true,
	}, newPodList())
	return apierrors.IsResourceExpired(err)
}

func (s *stored) raise(ctx context.Context, t *testing.T) int64 {
	return raise(ctx, t, s.client.Client)
}

// hasKey looks at what was written.
func (s *stored) hasKey(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	if s.cached {
		return // the key is that of the cache
	}
	r, err := s.client.KV.Get(ctx, key)
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("get %s: %v, %v, want it stored", key, r, err)
	}
	o, err := runtime.Decode(s.codec, r.Kvs[0].Value[len(marked):])
	if err != nil {
		t.Fatalf("%s: decode %q: %v", key, r.Kvs[0].Value, err)
	}
	if pod := o.(*example.Pod); pod.ResourceVersion != "" {
		t.Errorf("%s: its resource version, %s, is stored", key, pod.ResourceVersion)
	}
}

// anyCalls is for tests that would count the calls of the store: how many there
// are, no storage decides.
func anyCalls(*testing.T, uint64, uint64) {}
