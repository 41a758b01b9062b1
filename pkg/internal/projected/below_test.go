package projected_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	kube "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/internal/kept"
	"github.com/sailplane-dev/sailplane/pkg/internal/projected"
	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

// prefix is where upstream's tests expect Pods.
const prefix = "/pods/"

func podResource() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

// below are Pods that are in memory: what is below a view. They are read where they are stored.
// Writes are those of an API, with its errors, but for strategies, so that objects are what
// upstream's tests make them.
type below struct {
	*projected.Stored

	storage   storage.Interface
	forgetful *forgetful
	keeper    *keeptest.Memory[example.Pod, *example.Pod]
	scheme    *runtime.Scheme
	place     func(namespace, name string) string
}

var _ projected.Below = &below{}

// forgetful is a store that knows what was compacted, for its watch cache to forget it too. It notes
// which lists the watch cache asks it for.
type forgetful struct {
	storage.Interface
	forgotten atomic.Int64
	recorder  *kube.KubernetesRecorder
}

// GetList implements storage.Interface.
func (f *forgetful) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	at, start, err := storage.ValidateListOptions(key, f.Versioner(), opts)
	if err == nil {
		_, _ = f.recorder.List(ctx, "/registry"+key, kubernetes.ListOptions{Revision: at, Limit: opts.Predicate.Limit, Continue: start})
	}
	return f.Interface.GetList(ctx, key, opts, list)
}

// nowhere answers what the recorder hands on.
type nowhere struct{ kubernetes.Interface }

// List implements kubernetes.Interface.
func (nowhere) List(context.Context, string, kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	return kubernetes.ListResponse{}, nil
}

// CompactRevision implements storage.Interface.
func (f *forgetful) CompactRevision() int64 { return f.forgotten.Load() }

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

// newBelow puts the watch cache before the store that resources have.
func newBelow(t *testing.T, clusterScoped bool) *below {
	t.Helper()
	if err := upstream.AllowProgressRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &below{keeper: keeptest.NewMemory[example.Pod](), scheme: runtime.NewScheme()}
	metav1.AddToGroupVersion(b.scheme, metav1.SchemeGroupVersion)
	if err := errors.Join(example.AddToScheme(b.scheme), examplev1.AddToScheme(b.scheme)); err != nil {
		t.Fatal(err)
	}
	config, last := cacheOfPods(b.scheme, clusterScoped), &source.Last{}
	b.forgetful = &forgetful{
		recorder: kube.NewKubernetesRecorder(nowhere{}),
		Interface: kept.New(b.keeper, kept.Config{
			Resource: podResource(), Prefix: prefix, ClusterScoped: clusterScoped, Last: last,
		}),
	}
	config.Storage, config.Clock = b.forgetful, soonClock{}
	s, destroy := store.Cached(config, nil, last)
	t.Cleanup(destroy)
	b.storage = s
	at := strings.TrimSuffix(prefix, "/")
	root := func(ctx context.Context) string { return registry.NamespaceKeyRootFunc(ctx, at) + "/" }
	key := func(ctx context.Context, name string) (string, error) {
		return registry.NamespaceKeyFunc(ctx, at, name)
	}
	if clusterScoped {
		root = func(context.Context) string { return prefix }
		key = func(ctx context.Context, name string) (string, error) {
			return registry.NoNamespaceKeyFunc(ctx, at, name)
		}
	}
	b.place = func(namespace, name string) string {
		k, err := key(request.WithNamespace(context.Background(), namespace), name)
		if err != nil {
			t.Error(err)
		}
		return k
	}
	b.Stored = &projected.Stored{Find: func() (rest.Storage, bool) {
		return &registry.Store{
			NewFunc: newPod, NewListFunc: newPodList, DefaultQualifiedResource: podResource(), KeyRootFunc: root, KeyFunc: key,
			Storage: registry.DryRunnableStorage{Storage: s, Codec: config.Codec},
			PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
				return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: podAttrs}
			},
		}, true
	}}
	// The cache is made, and knows the version that the keeper began with.
	all := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	if err := s.GetList(t.Context(), prefix, all, newPodList()); err != nil {
		t.Fatal(err)
	}
	return b
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

// cacheOfPods is of a watch cache of Pods, without its source.
func cacheOfPods(scheme *runtime.Scheme, clusterScoped bool) cacher.Config {
	key := func(o runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, o) }
	if clusterScoped {
		key = func(o runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc(prefix, o) }
	}
	return cacher.Config{
		Versioner: storage.APIObjectVersioner{}, GroupResource: podResource(), EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix: prefix, KeyFunc: key, GetAttrsFunc: podAttrs, NewFunc: newPod, NewListFunc: newPodList, Clock: clock.RealClock{},
		Codec: serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion),
	}
}

// podAttrs are what upstream's tests select by.
func podAttrs(o runtime.Object) (labels.Set, fields.Set, error) {
	pod := o.(*example.Pod)
	return pod.Labels, fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
	}, nil
}

// String implements projected.Below.
func (*below) String() string { return "pods below" }

// pod is what the storage has of an object of the API.
func (b *below) pod(obj runtime.Object) (*example.Pod, error) {
	if pod, is := obj.(*example.Pod); is {
		return pod, nil
	}
	v1, pod := &examplev1.Pod{}, &example.Pod{}
	return pod, errors.Join(
		runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, v1), b.scheme.Convert(v1, pod, nil))
}

// encoded is a Pod as an object of the API.
func (b *below) encoded(pod *example.Pod) (*unstructured.Unstructured, error) {
	v1 := &examplev1.Pod{}
	if err := b.scheme.Convert(pod, v1, nil); err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v1)
	return &unstructured.Unstructured{Object: content}, err
}

// GetToWrite implements projected.Writer.
func (b *below) GetToWrite(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	pod := &example.Pod{}
	if err := b.storage.Get(ctx, b.place(namespace, name), storage.GetOptions{}, pod); err != nil {
		return nil, storeerr.InterpretGetError(err, podResource(), name)
	}
	return b.encoded(pod)
}

// Create implements projected.Writer.
func (b *below) Create(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	pod, err := b.pod(obj)
	if err != nil {
		return nil, err
	}
	made := &example.Pod{}
	if err := b.storage.Create(ctx, b.place(pod.Namespace, pod.Name), pod, made, 0); err != nil {
		return nil, storeerr.InterpretCreateError(err, podResource(), pod.Name)
	}
	return b.encoded(made)
}

// Update implements projected.Writer. There is no sub-resource below.
func (b *below) Update(ctx context.Context, obj *unstructured.Unstructured, subresource string) (*unstructured.Unstructured, error) {
	if subresource != "" {
		return nil, apierrors.NewNotFound(podResource(), obj.GetName())
	}
	pod, err := b.pod(obj)
	if err != nil {
		return nil, err
	}
	made := &example.Pod{}
	err = b.storage.GuaranteedUpdate(ctx, b.place(pod.Namespace, pod.Name), made, false,
		&storage.Preconditions{ResourceVersion: &pod.ResourceVersion},
		storage.SimpleUpdate(func(runtime.Object) (runtime.Object, error) { return pod.DeepCopy(), nil }), nil)
	if storage.IsInvalidObj(err) {
		return nil, apierrors.NewConflict(podResource(), pod.Name, err)
	}
	if err != nil {
		return nil, storeerr.InterpretUpdateError(err, podResource(), pod.Name)
	}
	return b.encoded(made)
}

// Delete implements projected.Writer.
func (b *below) Delete(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
	return storeerr.InterpretDeleteError(b.storage.Delete(ctx, b.place(namespace, name), newPod(), &storage.Preconditions{
		UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion,
	}, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}), podResource(), name)
}
