package storage

import (
	"context"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	kube "k8s.io/apiserver/pkg/storage/testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// plain are tests of Kubernetes that need nothing but a store. Two are left out that
// measure time: DelayedWatchDelivery gives a cache a second to deliver, and
// WatcherTimeout bounds how long writes take.
func plain() map[string]func(context.Context, *testing.T, storage.Interface) {
	return map[string]func(context.Context, *testing.T, storage.Interface){
		"CreateWithTTL":                             kube.RunTestCreateWithTTL,
		"CreateWithKeyExist":                        kube.RunTestCreateWithKeyExist,
		"Get":                                       kube.RunTestGet,
		"UnconditionalDelete":                       kube.RunTestUnconditionalDelete,
		"ConditionalDelete":                         kube.RunTestConditionalDelete,
		"DeleteWithSuggestion":                      kube.RunTestDeleteWithSuggestion,
		"DeleteWithSuggestionAndConflict":           kube.RunTestDeleteWithSuggestionAndConflict,
		"DeleteWithConflict":                        kube.RunTestDeleteWithConflict,
		"DeleteWithSuggestionOfDeletedObject":       kube.RunTestDeleteWithSuggestionOfDeletedObject,
		"ValidateDeletionWithSuggestion":            kube.RunTestValidateDeletionWithSuggestion,
		"ValidateDeletionWithOnlySuggestionValid":   kube.RunTestValidateDeletionWithOnlySuggestionValid,
		"PreconditionalDeleteWithSuggestion":        kube.RunTestPreconditionalDeleteWithSuggestion,
		"PreconditionalDeleteWithOnlySuggestion":    kube.RunTestPreconditionalDeleteWithOnlySuggestionPass,
		"ListPaging":                                kube.RunTestListPaging,
		"GetListRecursivePrefix":                    kube.RunTestGetListRecursivePrefix,
		"NamespaceScopedList":                       kube.RunTestNamespaceScopedList,
		"KeySchema":                                 kube.RunTestKeySchema,
		"GuaranteedUpdateWithTTL":                   kube.RunTestGuaranteedUpdateWithTTL,
		"GuaranteedUpdateWithConflict":              kube.RunTestGuaranteedUpdateWithConflict,
		"GuaranteedUpdateWithSuggestionAndConflict": kube.RunTestGuaranteedUpdateWithSuggestionAndConflict,
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
	}
}

// special are tests of Kubernetes that need to know more.
func special() map[string]func(context.Context, *testing.T, *stored) {
	return map[string]func(context.Context, *testing.T, *stored){
		"Create": func(ctx context.Context, t *testing.T, s *stored) { kube.RunTestCreate(ctx, t, s, s.hasKey) },
		"List": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestList(ctx, t, s, s.compact, s.cached, s.recorder)
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestConsistentList(ctx, t, s, s.raise, s.cached, true, s.cached)
		},
		"GetListNonRecursive": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestGetListNonRecursive(ctx, t, s.raise, s)
		},
		"CompactRevision": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestCompactRevision(ctx, t, s, s.raise, s.compact)
		},
		"ListContinuation": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestListContinuation(ctx, t, s, anyCalls)
		},
		"ListPaginationRareObject": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestListPaginationRareObject(ctx, t, s, anyCalls)
		},
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestListContinuationWithFilter(ctx, t, s, anyCalls)
		},
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestWatchDispatchBookmarkEvents(ctx, t, s, s.cached)
		},
	}
}

// uncached are tests that Kubernetes runs on a store without a watch cache only:
// they change what is stored under it, or compact what it would still have.
func uncached() map[string]func(context.Context, *testing.T, *stored) {
	return map[string]func(context.Context, *testing.T, *stored){
		"WatchFromZero": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestWatchFromZero(ctx, t, s, s.compact)
		},
		"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestListInconsistentContinuation(ctx, t, s, s.compact)
		},
		"ListResourceVersionMatch": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestListResourceVersionMatch(ctx, t, s)
		},
		"GuaranteedUpdate": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestGuaranteedUpdate(ctx, t, s, s.hasKey)
		},
		"GuaranteedUpdateChecksStoredData": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestGuaranteedUpdateChecksStoredData(ctx, t, s)
		},
		"TransformationFailure": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestTransformationFailure(ctx, t, s)
		},
		"WatchError": func(ctx context.Context, t *testing.T, s *stored) { kube.RunTestWatchError(ctx, t, s) },
		"WatchContextCancel": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestWatchContextCancel(ctx, t, s)
		},
		"WatchErrorIsBlockingFurtherEvents": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunWatchErrorIsBlockingFurtherEvents(ctx, t, s)
		},
		"ClusterScopedWatch": func(ctx context.Context, t *testing.T, s *stored) {
			kube.RunTestClusterScopedWatch(ctx, t, s)
		},
	}
}

// TestStore runs Kubernetes' tests of its etcd3 store on every storage.
func TestStore(t *testing.T) {
	all := special()
	maps.Copy(all, uncached())
	runAll(t, all, func(t *testing.T, s controlplane.Storage) *stored { return newStored(t, s) })
}

// TestWatchCache runs Kubernetes' tests of its watch cache on every storage.
func TestWatchCache(t *testing.T) {
	all := special()
	// A watch bookmark once a second or so has the newest resource version.
	all["WatchBookmarks"] = func(ctx context.Context, t *testing.T, s *stored) {
		kube.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, s)
	}
	runAll(t, all, func(t *testing.T, s controlplane.Storage) *stored { return newCached(t, s, namespaced) })
}

// TestWatchCacheOfClusterScoped is the one test whose objects have no namespace.
func TestWatchCacheOfClusterScoped(t *testing.T) {
	for name, open := range storages() {
		t.Run(name, func(t *testing.T) {
			s := newCached(t, open(t.TempDir()), func(o runtime.Object) (string, error) { return clustered(o) })
			kube.RunTestClusterScopedWatch(context.Background(), t, s)
		})
	}
}

// runAll runs one test at a time: some change feature gates of the process.
func runAll(
	t *testing.T, all map[string]func(context.Context, *testing.T, *stored),
	open func(*testing.T, controlplane.Storage) *stored,
) {
	for name, test := range plain() {
		all[name] = func(ctx context.Context, t *testing.T, s *stored) { test(ctx, t, s) }
	}
	for name, describe := range storages() {
		t.Run(name, func(t *testing.T) {
			for name, test := range all {
				t.Run(name, func(t *testing.T) {
					s := open(t, describe(t.TempDir()))
					s.awaits = slices.Contains(awaited(), name)
					// The tests watch until they stop it themselves.
					test(context.Background(), t, s)
				})
			}
		})
	}
}
