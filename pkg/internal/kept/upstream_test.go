package kept_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/storage"
	kube "k8s.io/apiserver/pkg/storage/testing"
)

type test func(context.Context, *testing.T, *pods)

// on makes a test of one that needs nothing but a store.
func on(run func(context.Context, *testing.T, storage.Interface)) test {
	return func(ctx context.Context, t *testing.T, p *pods) { run(ctx, t, p) }
}

// everywhere are the tests that hold with the watch cache and without it.
func everywhere() map[string]test {
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
		"GetListRecursivePrefix":                    on(kube.RunTestGetListRecursivePrefix),
		"NamespaceScopedList":                       on(kube.RunTestNamespaceScopedList),
		"GuaranteedUpdateWithSuggestionAndConflict": on(kube.RunTestGuaranteedUpdateWithSuggestionAndConflict),
		"DeleteTriggerWatch":                        on(kube.RunTestDeleteTriggerWatch),
		"WatchFromNonZero":                          on(kube.RunTestWatchFromNonZero),
		"WatchDeleteEventObjectHaveLatestRV":        on(kube.RunTestWatchDeleteEventObjectHaveLatestRV),
		"WatchInitializationSignal":                 on(kube.RunTestWatchInitializationSignal),
		"WatchContextCancel":                        on(kube.RunTestWatchContextCancel),
		"DelayedWatchDelivery":                      on(kube.RunTestDelayedWatchDelivery),
		"SendInitialEventsBackwardCompatibility":    on(kube.RunSendInitialEventsBackwardCompatibility),
		"WatchSemanticInitialEventsExtended":        on(kube.RunWatchSemanticInitialEventsExtended),
		"ConsistentList": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestConsistentList(ctx, t, p, p.raise, p.cached, true, p.cached)
		},
		"ListContinuation": func(ctx context.Context, t *testing.T, p *pods) { kube.RunTestListContinuation(ctx, t, p, anyCalls) },
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestListContinuationWithFilter(ctx, t, p, anyCalls)
		},
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestWatchDispatchBookmarkEvents(ctx, t, p, p.cached)
		},
	}
}

// onlyCached are the tests of what the watch cache adds: the past, selectors of watches, and
// whether an object that changed is new.
func onlyCached() map[string]test {
	return map[string]test{
		"ListPaging":           on(kube.RunTestListPaging),
		"Watch":                on(kube.RunTestWatch),
		"NamespaceScopedWatch": on(kube.RunTestNamespaceScopedWatch),
		"WatcherTimeout":       on(kube.RunTestWatcherTimeout),
		"WatchSemantics":       on(kube.RunWatchSemantics),
		"WatchListMatchSingle": on(kube.RunWatchListMatchSingle),
		"WatchBookmarks":       on(kube.RunTestOptionalWatchBookmarksWithCorrectResourceVersion),
		"List": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestList(ctx, t, p, p.forget, p.cached, p.store.recorder)
		},
		"CompactRevision": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestCompactRevision(ctx, t, p, p.raise, p.forget)
		},
	}
}

// onlyStore are the tests that upstream, too, runs on stores without a watch cache only.
func onlyStore() map[string]test {
	return map[string]test{
		"WatchFromZero": func(ctx context.Context, t *testing.T, p *pods) { kube.RunTestWatchFromZero(ctx, t, p, p.forget) },
		"ProgressNotify": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunOptionalTestProgressNotify(ctx, t, p, p.raise)
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
		"Stats": func(ctx context.Context, t *testing.T, p *pods) {
			kube.RunTestStats(ctx, t, p, podCodec(t), kube.NewPrefixTransformer(nil, false), false)
		},
	}
}

// TestKubernetes runs upstream's tests of storages, one at a time: some change feature gates of
// the process. Left out are those that need what no keeper has:
//
//   - CreateWithTTL, GuaranteedUpdateWithTTL: nothing that is kept ends by itself.
//   - GuaranteedUpdate, GuaranteedUpdateWithConflict, ListInconsistentContinuation, KeySchema: they write
//     objects with the keys of others, or without a name. TestConflict and TestExpired are in their place.
//   - GetListNonRecursive: it lists one object as it was before, which only etcd can tell; see TestExpired.
//   - GuaranteedUpdateChecksStoredData, TransformationFailure, ListResourceVersionMatch, WatchError,
//     WatchErrorIsBlockingFurtherEvents: they change the bytes that are stored.
//   - DeleteExpectedTransformOrDecodeError and the like, GetListWithErrorAggregation,
//     GetListWithoutErrorAggregation, WatchWithUnsafeDelete: they are of bytes that cannot be decoded.
func TestKubernetes(t *testing.T) {
	cached := onlyCached()
	maps.Copy(cached, everywhere())
	plain := onlyStore()
	maps.Copy(plain, everywhere())
	// The tests watch until they stop it themselves, and some never do.
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for name, run := range plain {
		t.Run("Store/"+name, func(t *testing.T) { run(ctx, t, newPods(false)) })
	}
	for name, run := range cached {
		t.Run("Cached/"+name, func(t *testing.T) {
			p := newCached(t, false)
			p.awaits = slices.Contains(awaited(), name)
			run(ctx, t, p)
		})
	}
	for name, run := range clusterScoped() {
		t.Run("ClusterScoped/"+name, func(t *testing.T) { run(ctx, t, newCached(t, true)) })
	}
}
