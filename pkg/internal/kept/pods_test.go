package kept_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	kube "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/internal/kept"
	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

// recording notes which lists the watch cache asks the store for.
type recording struct {
	storage.Interface
	recorder  *kube.KubernetesRecorder
	forgotten atomic.Int64
}

// CompactRevision implements storage.Interface, as upstream's tests of what was compacted need it.
func (r *recording) CompactRevision() int64 { return r.forgotten.Load() }

// GetList implements storage.Interface.
func (r *recording) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	at, start, err := storage.ValidateListOptions(key, r.Versioner(), opts)
	if err == nil {
		_, _ = r.recorder.List(ctx, "/registry"+key, kubernetes.ListOptions{Revision: at, Limit: opts.Predicate.Limit, Continue: start})
	}
	return r.Interface.GetList(ctx, key, opts, list)
}

// nowhere answers what the recorder hands on.
type nowhere struct{ kubernetes.Interface }

// List implements kubernetes.Interface.
func (nowhere) List(context.Context, string, kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	return kubernetes.ListResponse{}, nil
}

// pods is the store of example Pods, as upstream's tests want it.
type pods struct {
	storage.Interface
	store  *recording
	keeper *keeptest.Memory[example.Pod, *example.Pod]
	cached bool
	awaits bool // Create returns when the cache has the object
}

const (
	prefix   = "/pods/" // where upstream's tests expect Pods
	patience = 30 * time.Second
)

func newPods(clusterScoped bool) *pods {
	m := keeptest.NewMemory[example.Pod]()
	r := &recording{recorder: kube.NewKubernetesRecorder(nowhere{}), Interface: kept.New(m, kept.Config{
		Resource: schema.GroupResource{Resource: "pods"}, Prefix: prefix, ClusterScoped: clusterScoped,
	})}
	return &pods{store: r, keeper: m, Interface: r}
}

// newCached puts the watch cache before the store that resources have.
func newCached(t *testing.T, clusterScoped bool) *pods {
	t.Helper()
	if err := upstream.AllowProgressRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := newPods(clusterScoped)
	key := func(o runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, o) }
	if clusterScoped {
		key = func(o runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc(prefix, o) }
	}
	s, destroy := store.Cached(cacher.Config{
		Storage: p.Interface, Versioner: storage.APIObjectVersioner{}, GroupResource: schema.GroupResource{Resource: "pods"},
		EventsHistoryWindow: cacher.DefaultEventFreshDuration, ResourcePrefix: prefix, KeyFunc: key, GetAttrsFunc: attributes,
		NewFunc: func() runtime.Object { return &example.Pod{} }, NewListFunc: func() runtime.Object { return &example.PodList{} },
		Codec: podCodec(t), Clock: soonClock{},
	}, nil, &source.Last{})
	t.Cleanup(destroy)
	p.Interface, p.cached = s, true
	// The cache is made, and knows the version that the keeper began with.
	if err := p.GetList(t.Context(), prefix, storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &example.PodList{}); err != nil {
		t.Fatal(err)
	}
	return p
}

func podCodec(t *testing.T) runtime.Codec {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
}

// soonClock has the watch cache look for compactions every few milliseconds, and not every 15
// seconds.
type soonClock struct{ clock.RealClock }

// NewTimer implements clock.Clock.
func (soonClock) NewTimer(d time.Duration) clock.Timer {
	return soonTimer{clock.RealClock{}.NewTimer(min(d, soon))}
}

const soon = 20 * time.Millisecond

type soonTimer struct{ clock.Timer }

// Reset implements clock.Timer.
func (t soonTimer) Reset(d time.Duration) bool { return t.Timer.Reset(min(d, soon)) }

// attributes are what upstream's tests select by.
func attributes(o runtime.Object) (labels.Set, fields.Set, error) {
	pod := o.(*example.Pod)
	return pod.Labels, fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
	}, nil
}

// oneSlash is the key of an object in no namespace that upstream's tests give an empty one.
func oneSlash(key string) string { return strings.Replace(key, "//", "/", 1) }

// awaited tests create objects of which the cache has to know at once.
func awaited() []string {
	return []string{
		"SendInitialEventsBackwardCompatibility", "WatchSemantics", "WatchSemanticInitialEventsExtended", "WatchListMatchSingle",
	}
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (p *pods) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return p.Interface.Delete(ctx, oneSlash(key), out, preconditions, validate, cached, opts)
}

// Create implements storage.Interface.
func (p *pods) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	key = oneSlash(key)
	if err := p.Interface.Create(ctx, key, obj, out, ttl); err != nil || !p.awaits {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := p.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, &example.Pod{})
		if storage.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// raise has the version grow without any change, and returns it.
func (p *pods) raise(context.Context, *testing.T) int64 { return p.keeper.Skip() }

// forget is a compaction. As etcd's, it has the version grow.
func (p *pods) forget(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	v, err := storage.APIObjectVersioner{}.ParseResourceVersion(version)
	if err != nil || v > math.MaxInt64 {
		t.Fatal(v, err)
	}
	p.keeper.Forget(int64(v))
	p.keeper.Skip()
	p.store.forgotten.Store(int64(v))
	if !p.cached || v < 2 {
		return
	}
	// The cache has dropped what is older when it no longer answers with it.
	opts := storage.ListOptions{
		ResourceVersion: fmt.Sprint(v - 1), ResourceVersionMatch: metav1.ResourceVersionMatchExact, Predicate: storage.Everything, Recursive: true,
	}
	err = wait.PollUntilContextTimeout(ctx, time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsResourceExpired(p.GetList(ctx, prefix, opts, &example.PodList{})) && p.CompactRevision() == int64(v), nil
	})
	if err != nil {
		t.Fatalf("version %d is not forgotten: %v", v, err)
	}
}

// hasKey looks at what the keeper got.
func (p *pods) hasKey(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	var k keep.Key
	if _, err := fmt.Sscanf(key, prefix+"test-ns/%s", &k.Name); err != nil {
		t.Fatal(key, err)
	}
	k.Namespace = "test-ns"
	item, err := p.keeper.Get(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	if item.Object.ResourceVersion != "" {
		t.Errorf("%s: its resource version %q is kept", key, item.Object.ResourceVersion)
	}
}

// GuaranteedUpdate implements storage.Interface. What is kept has no time to live, which two tests
// set beside what they test.
//
//nolint:revive // the parameters are storage.Interface's
func (p *pods) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return p.Interface.GuaranteedUpdate(ctx, oneSlash(key), out, ignoreNotFound, preconditions,
		func(o runtime.Object, m storage.ResponseMeta) (runtime.Object, *uint64, error) {
			updated, _, err := update(o, m)
			return updated, nil, err
		}, cached)
}

func anyCalls(*testing.T, uint64, uint64) {}
