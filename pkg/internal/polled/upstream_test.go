package polled_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	kube "k8s.io/apiserver/pkg/storage/testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/polled"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

const resourcePrefix = "/pods/"

// options are those of a storage that is not used.
type options struct{ codec runtime.Codec }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o options) GetRESTOptions(r schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig("", o.codec)
	config.EncodeVersioner = examplev1.SchemeGroupVersion
	return generic.RESTOptions{StorageConfig: config.ForResource(r), ResourcePrefix: resourcePrefix}, nil
}

// written is a store whose function reads a map that the tests of Kubernetes write.
type written struct {
	storage.Interface
	first string // its version at first

	mu  sync.Mutex
	all map[string]*example.Pod
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func newWritten(t *testing.T, clusterScoped bool, source func(*written) polled.Source) *written {
	t.Helper()
	if err := upstream.AllowProgressRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := errors.Join(example.AddToScheme(scheme), examplev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &written{all: map[string]*example.Pod{}}
	resource := schema.GroupResource{Resource: "pods"}
	o, err := polled.Options{
		RESTOptionsGetter: options{serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)},
		Source:            source(w), ClusterScoped: clusterScoped, Report: func(error) {},
	}.GetRESTOptions(resource, newPod())
	if err != nil {
		t.Fatal(err)
	}
	key := func(o runtime.Object) (string, error) {
		if clusterScoped {
			return storage.NoNamespaceKeyFunc(resourcePrefix, o)
		}
		return storage.NamespaceKeyFunc(resourcePrefix, o)
	}
	made, destroy, err := o.Decorator(o.StorageConfig, resourcePrefix, key, newPod, newPodList, podAttrs, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	w.Interface = made
	version, err := made.GetCurrentResourceVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.first = fmt.Sprint(version)
	return w
}

// poll is a source that reads the map.
func poll(w *written) polled.Source {
	return polled.Source{Every: time.Millisecond, Timeout: time.Minute, Read: func(context.Context, polled.Query) ([]runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		var all []runtime.Object
		for _, pod := range w.all {
			all = append(all, pod.DeepCopy())
		}
		return all, nil
	}}
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

// Create has the map have an object, and the store know it.
func (w *written) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	key = path.Clean(key) // a test has an empty namespace in it
	pod := obj.(*example.Pod).DeepCopy()
	pod.ResourceVersion = ""
	w.mu.Lock()
	w.all[key] = pod
	w.mu.Unlock()
	if out == nil {
		out = newPod()
	}
	return w.Interface.Get(ctx, key, storage.GetOptions{}, out)
}

// GuaranteedUpdate changes an object in the map.
//
//nolint:revive // the parameters are storage.Interface's
func (w *written) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, _ bool, _ *storage.Preconditions, try storage.UpdateFunc, _ runtime.Object,
) error {
	was := newPod()
	if err := w.Interface.Get(ctx, key, storage.GetOptions{IgnoreNotFound: true}, was); err != nil {
		return err
	}
	now, _, err := try(was, storage.ResponseMeta{})
	if err != nil {
		return err
	}
	return w.Create(ctx, key, now, out, 0)
}

// Delete has the map have an object no more. The version of that is where the store is then.
//
//nolint:revive // the parameters are storage.Interface's
func (w *written) Delete(
	ctx context.Context, key string, out runtime.Object, _ *storage.Preconditions, _ storage.ValidateObjectFunc,
	_ runtime.Object, _ storage.DeleteOptions,
) error {
	if err := w.Interface.Get(ctx, key, storage.GetOptions{}, out); err != nil {
		return err
	}
	w.mu.Lock()
	delete(w.all, key)
	w.mu.Unlock()
	if err := w.Interface.Get(ctx, key, storage.GetOptions{IgnoreNotFound: true}, newPod()); err != nil {
		return err
	}
	version, err := w.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	return w.Versioner().UpdateObject(out, version)
}

// Get answers to a version that is to come as a storage does that will have it.
func (w *written) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return w.future(ctx, opts.ResourceVersion, w.Interface.Get(ctx, key, opts, out))
}

// GetList is as Get.
func (w *written) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	return w.future(ctx, opts.ResourceVersion, w.Interface.GetList(ctx, key, opts, out))
}

// Watch takes the first version of a storage, which tests write down, for the first of this one.
func (w *written) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.ResourceVersion == "1" {
		opts.ResourceVersion = w.first
	}
	return w.Interface.Watch(ctx, key, opts)
}

func (w *written) future(ctx context.Context, asked string, err error) error {
	at, _ := strconv.ParseUint(asked, 10, 64)
	if current, _ := w.GetCurrentResourceVersion(ctx); at > current && apierrors.IsResourceExpired(err) {
		return storage.NewTooLargeResourceVersionError(at, current, 0)
	}
	return err
}

// raise has the store be at a later version.
func (w *written) raise(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	const key = resourcePrefix + "other/other"
	other := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "other"}}
	err := errors.Join(w.Create(ctx, key, other, nil, 0), w.Delete(ctx, key, newPod(), nil, nil, nil, storage.DeleteOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	version, err := w.GetCurrentResourceVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return int64(version) //nolint:gosec // it is the time
}

// reads are the tests of Kubernetes that read. Those that write and compact are of a storage,
// which a source is not, List among them; so are those of values that are stored and cannot be
// decoded. ConsistentList is about versions of other resources, which have none here.
// DelayedWatchDelivery, WatcherTimeout and ProgressNotify measure time.
func reads() map[string]func(context.Context, *testing.T, *written) {
	all := map[string]func(context.Context, *testing.T, *written){}
	for name, test := range map[string]func(context.Context, *testing.T, storage.Interface){
		"Get":                                    kube.RunTestGet,
		"ListPaging":                             kube.RunTestListPaging,
		"GetListRecursivePrefix":                 kube.RunTestGetListRecursivePrefix,
		"NamespaceScopedList":                    kube.RunTestNamespaceScopedList,
		"Watch":                                  kube.RunTestWatch,
		"NamespaceScopedWatch":                   kube.RunTestNamespaceScopedWatch,
		"DeleteTriggerWatch":                     kube.RunTestDeleteTriggerWatch,
		"WatchFromNonZero":                       kube.RunTestWatchFromNonZero,
		"WatchDeleteEventObjectHaveLatestRV":     kube.RunTestWatchDeleteEventObjectHaveLatestRV,
		"WatchInitializationSignal":              kube.RunTestWatchInitializationSignal,
		"SendInitialEventsBackwardCompatibility": kube.RunSendInitialEventsBackwardCompatibility,
		"WatchSemantics":                         kube.RunWatchSemantics,
		"WatchSemanticInitialEventsExtended":     kube.RunWatchSemanticInitialEventsExtended,
		"WatchListMatchSingle":                   kube.RunWatchListMatchSingle,
		"WatchBookmarks":                         kube.RunTestOptionalWatchBookmarksWithCorrectResourceVersion,
	} {
		all[name] = func(ctx context.Context, t *testing.T, w *written) { test(ctx, t, w) }
	}
	all["ListContinuation"] = func(ctx context.Context, t *testing.T, w *written) {
		kube.RunTestListContinuation(ctx, t, w, anyCalls)
	}
	all["ListContinuationWithFilter"] = func(ctx context.Context, t *testing.T, w *written) {
		kube.RunTestListContinuationWithFilter(ctx, t, w, anyCalls)
	}
	all["GetListNonRecursive"] = func(ctx context.Context, t *testing.T, w *written) {
		kube.RunTestGetListNonRecursive(ctx, t, w.raise, w)
	}
	all["WatchDispatchBookmarkEvents"] = func(ctx context.Context, t *testing.T, w *written) {
		kube.RunTestWatchDispatchBookmarkEvents(ctx, t, w, true)
	}
	return all
}

// anyCalls is for tests that would count calls: how many there are, nothing promises.
func anyCalls(*testing.T, uint64, uint64) {}

// TestUpstream runs Kubernetes' tests of storages on a function that reads a map.
func TestUpstream(t *testing.T) {
	all := reads()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { all[name](context.Background(), t, newWritten(t, false, poll)) })
	}
	t.Run("ClusterScopedWatch", func(t *testing.T) {
		kube.RunTestClusterScopedWatch(context.Background(), t, newWritten(t, true, poll))
	})
	t.Run("ListPaginationRareObject", func(t *testing.T) {
		kube.RunTestListPaginationRareObject(context.Background(), t, newWritten(t, true, poll), anyCalls)
	})
}
