package projected_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	kube "k8s.io/apiserver/pkg/storage/testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/projected"
)

// pods is the view of Pods, as upstream's tests want it.
type pods struct {
	*projected.Store

	below  *below
	hidden bool // each Pod has one beside it that is not shown
}

const patience = 30 * time.Second

func newPods(t *testing.T, clusterScoped bool) *pods {
	t.Helper()
	b := newBelow(t, clusterScoped)
	cache := cacheOfPods(b.scheme, clusterScoped)
	cache.GetAttrsFunc = projected.Attributes(cache.GetAttrsFunc)
	p := &pods{below: b, Store: projected.New(projected.Config{
		Projection: projected.Projection{Below: b, Publish: b.publish, Accept: b.accept},
		Resource:   podResource(), Kind: "Pod", ClusterScoped: clusterScoped, Cache: cache,
	})}
	t.Cleanup(p.Close)
	// The view has a watch cache, which knows the version that the keeper began with.
	w, err := p.Watch(t.Context(), prefix, storage.ListOptions{Recursive: true, Predicate: storage.Everything})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return p
}

// notShown is the subdomain of Pods that are not shown.
const notShown = "hidden"

// Create implements storage.Interface. A Pod that is not shown is written before.
func (p *pods) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if p.hidden {
		beside := obj.DeepCopyObject().(*example.Pod)
		beside.Name, beside.ResourceVersion, beside.Spec.Subdomain = "a-"+beside.Name, "", notShown
		at := p.below.place(beside.Namespace, beside.Name)
		if err := p.below.storage.Create(ctx, at, beside, newPod(), 0); err != nil && !storage.IsExist(err) {
			return err
		}
	}
	return p.Store.Create(ctx, key, obj, out, ttl)
}

// publish shows all of a Pod, or nothing.
func (b *below) publish(from, to projected.Object) (bool, error) {
	pod, err := b.pod(from)
	if err != nil {
		return false, err
	}
	view := to.(*example.Pod)
	view.Spec, view.Status = *pod.Spec.DeepCopy(), *pod.Status.DeepCopy()
	return pod.Spec.Subdomain != notShown, nil
}

// accept takes all of a Pod, its UID and generation included. A name that is another one becomes the
// hostname: upstream's test of conflicts changes the name.
func (b *below) accept(view projected.Object, to *unstructured.Unstructured) error {
	pod, err := b.encoded(view.(*example.Pod))
	if err != nil {
		return err
	}
	renamed := view.GetName() != to.GetName()
	to.SetUID(view.GetUID())
	to.SetGeneration(view.GetGeneration())
	to.Object["spec"], to.Object["status"] = pod.Object["spec"], pod.Object["status"]
	if renamed {
		return unstructured.SetNestedField(to.Object, view.GetName(), "spec", "hostname")
	}
	return nil
}

// anyCalls is for tests that would count calls: how many there are, nothing promises.
func anyCalls(*testing.T, uint64, uint64) {}

type test func(context.Context, *testing.T, *pods)

// on makes a test of one that needs nothing but a store.
func on(run func(context.Context, *testing.T, storage.Interface)) test {
	return func(ctx context.Context, t *testing.T, p *pods) { run(ctx, t, p) }
}

// namespaced are the tests whose Pods are in namespaces.
func namespaced() map[string]test {
	return map[string]test{
		"Create":                                    func(ctx context.Context, t *testing.T, p *pods) { kube.RunTestCreate(ctx, t, p, p.hasKey) },
		"CreateWithKeyExist":                        on(kube.RunTestCreateWithKeyExist),
		"Get":                                       on(kube.RunTestGet),
		"UnconditionalDelete":                       on(kube.RunTestUnconditionalDelete),
		"ConditionalDelete":                         on(kube.RunTestConditionalDelete),
		"DeleteWithSuggestion":                      on(kube.RunTestDeleteWithSuggestion),
		"DeleteWithSuggestionAndConflict":           on(kube.RunTestDeleteWithSuggestionAndConflict),
		"DeleteWithConflict":                        on(kube.RunTestDeleteWithConflict),
		"DeleteWithSuggestionOfDeletedObject":       on(kube.RunTestDeleteWithSuggestionOfDeletedObject),
		"ValidateDeletionWithSuggestion":            on(kube.RunTestValidateDeletionWithSuggestion),
		"ValidateDeletionWithOnlySuggestionValid":   on(kube.RunTestValidateDeletionWithOnlySuggestionValid),
		"PreconditionalDeleteWithSuggestion":        on(kube.RunTestPreconditionalDeleteWithSuggestion),
		"PreconditionalDeleteWithOnlySuggestion":    on(kube.RunTestPreconditionalDeleteWithOnlySuggestionPass),
		"ListPaging":                                on(kube.RunTestListPaging),
		"GetListRecursivePrefix":                    on(kube.RunTestGetListRecursivePrefix),
		"NamespaceScopedList":                       on(kube.RunTestNamespaceScopedList),
		"GuaranteedUpdateWithSuggestionAndConflict": on(kube.RunTestGuaranteedUpdateWithSuggestionAndConflict),
		"Watch":                                  on(kube.RunTestWatch),
		"NamespaceScopedWatch":                   on(kube.RunTestNamespaceScopedWatch),
		"DeleteTriggerWatch":                     on(kube.RunTestDeleteTriggerWatch),
		"WatchFromNonZero":                       on(kube.RunTestWatchFromNonZero),
		"WatcherTimeout":                         on(kube.RunTestWatcherTimeout),
		"WatchDeleteEventObjectHaveLatestRV":     on(kube.RunTestWatchDeleteEventObjectHaveLatestRV),
		"WatchInitializationSignal":              on(kube.RunTestWatchInitializationSignal),
		"DelayedWatchDelivery":                   on(kube.RunTestDelayedWatchDelivery),
		"SendInitialEventsBackwardCompatibility": on(kube.RunSendInitialEventsBackwardCompatibility),
		"WatchSemantics":                         on(kube.RunWatchSemantics),
		"WatchSemanticInitialEventsExtended":     on(kube.RunWatchSemanticInitialEventsExtended),
		"WatchListMatchSingle":                   on(kube.RunWatchListMatchSingle),
		"WatchBookmarks":                         on(kube.RunTestOptionalWatchBookmarksWithCorrectResourceVersion),
		"GuaranteedUpdateWithConflict":           on(kube.RunTestGuaranteedUpdateWithConflict),
		"List": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestList(ctx, t, p, p.forget, true, p.below.forgetful.recorder)
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestConsistentList(ctx, t, p, p.raise, true, true, true)
		},
		"ListContinuation": func(ctx context.Context, t *testing.T, p *pods) { kube.RunTestListContinuation(ctx, t, p, anyCalls) },
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestListContinuationWithFilter(ctx, t, p, anyCalls)
		},
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestWatchDispatchBookmarkEvents(ctx, t, p, true)
		},
	}
}

// clusterScoped are the tests whose Pods are in no namespace.
func clusterScoped() map[string]test {
	return map[string]test{
		"ClusterScopedWatch": on(kube.RunTestClusterScopedWatch),
		"ListPaginationRareObject": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestListPaginationRareObject(ctx, t, p, anyCalls)
		},
	}
}

// TestKubernetes runs upstream's tests of storages, one at a time: some change feature gates of
// the process. Hidden ones have a Pod that is not shown before each that is. Left out are those that need what no view has:
//
//   - CreateWithTTL, GuaranteedUpdateWithTTL: no API has a time to live.
//   - KeySchema, GuaranteedUpdate, ListInconsistentContinuation: they write objects with the keys of
//     others, or without a name.
//   - CompactRevision, Stats, ProgressNotify: history, size and progress are those of the storage below.
//   - GetListNonRecursive: it lists one object as it was before, which the storage below cannot tell.
//   - WatchFromZero: upstream runs it on stores without a watch cache only, which may have what was compacted.
//   - WatchContextCancel: a watch begins with a call below, which fails for who is gone.
//   - GuaranteedUpdateChecksStoredData, TransformationFailure, ListResourceVersionMatch, WatchError,
//     WatchErrorIsBlockingFurtherEvents: they change the bytes that are stored.
//   - DeleteExpectedTransformOrDecodeError and the like, GetListWithErrorAggregation,
//     GetListWithoutErrorAggregation, WatchWithUnsafeDelete: they are of bytes that cannot be decoded.
func TestKubernetes(t *testing.T) {
	// The tests watch until they stop it themselves, and some never do.
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for name, run := range namespaced() {
		t.Run(name, func(t *testing.T) { run(ctx, t, newPods(t, false)) })
	}
	for name, run := range namespaced() {
		if name == "List" {
			continue // it wants to know how many objects remain, which a view that hides some cannot tell
		}
		t.Run("Hidden/"+name, func(t *testing.T) {
			p := newPods(t, false)
			p.hidden = true
			run(ctx, t, p)
		})
	}
	for name, run := range clusterScoped() {
		t.Run(name, func(t *testing.T) { run(ctx, t, newPods(t, true)) })
	}
}

// Delete implements storage.Interface. Which version a deletion has no API tells, so that upstream's
// tests have it from the storage below.
//
//nolint:revive // the parameters are storage.Interface's
func (p *pods) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if err := p.Store.Delete(ctx, key, out, preconditions, validate, cached, opts); err != nil {
		return err
	}
	version, err := p.below.storage.GetCurrentResourceVersion(ctx)
	return errors.Join(err, p.Versioner().UpdateObject(out, version))
}

// raise has the version grow without any change, and returns it.
func (p *pods) raise(context.Context, *testing.T) int64 { return p.below.keeper.Skip() }

// forget is a compaction below. As etcd's, it has the version grow.
func (p *pods) forget(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	v, err := p.Versioner().ParseResourceVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	p.below.keeper.Forget(int64(v))
	p.below.keeper.Skip()
	p.below.forgetful.forgotten.Store(int64(v))
	// The cache below has dropped what is older when it no longer answers with it.
	opts := storage.ListOptions{
		ResourceVersion: fmt.Sprint(v - 1), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		Predicate: storage.Everything, Recursive: true,
	}
	err = wait.PollUntilContextTimeout(ctx, time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsResourceExpired(p.below.storage.GetList(ctx, prefix, opts, newPodList())), nil
	})
	if err != nil {
		t.Fatalf("version %d is not forgotten: %v", v, err)
	}
}

// GetList implements storage.Interface. How many objects remain a view does not know, so that
// upstream's tests have it from the storage below.
func (p *pods) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := p.Store.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	ctx = context.WithValue(ctx, kube.RecorderContextKey, nil)
	below := &example.PodList{}
	if err := p.below.storage.GetList(ctx, key, opts, below); err != nil {
		return err
	}
	list.(*example.PodList).RemainingItemCount = below.RemainingItemCount
	return nil
}

// hasKey looks at what is below.
func (p *pods) hasKey(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	if err := p.below.storage.Get(ctx, key, storage.GetOptions{}, newPod()); err != nil {
		t.Error(err)
	}
}

// TestLimitOfCache: a cache answers with all that it has, whatever the limit, and no token leads to
// what would be left out.
func TestLimitOfCache(t *testing.T) {
	p := newPods(t, false)
	for _, name := range []string{"one", "two"} {
		pod := &example.Pod{}
		pod.Namespace, pod.Name = "default", name
		if err := p.Create(t.Context(), prefix+"default/"+name, pod, newPod(), 0); err != nil {
			t.Fatal(err)
		}
	}
	opts := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
	opts.Predicate.Limit = 1
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		below, list := &example.PodList{}, &example.PodList{}
		if err := errors.Join(p.below.storage.GetList(ctx, prefix, opts, below), p.GetList(ctx, prefix, opts, list)); err != nil {
			return false, err
		}
		if len(list.Items) < len(below.Items) {
			return false, fmt.Errorf("the list has %d objects and token %q, below there are %d", len(list.Items), list.Continue, len(below.Items))
		}
		return len(below.Items) == 2, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
