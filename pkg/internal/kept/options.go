package kept

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// Options has a resource be kept by a keeper, in place of the storage of the plane.
type Options[T any, PT Object[T]] struct {
	generic.RESTOptionsGetter

	Keeper        keep.Keeper[T]
	Kind          string
	ClusterScoped bool
	// Default fills in what an object lacks that the keeper returned.
	Default func(runtime.Object)
	// Report is called with the error of each call of the keeper that shows whether it answers.
	Report func(error)
	// Stale is how old an answer may be that is given while the keeper fails.
	Stale time.Duration
}

// historyBytes is how much of the past the watch cache has, for watches that begin there.
const historyBytes = 32 << 20

// GetRESTOptions implements generic.RESTOptionsGetter. The garbage collector does not see what
// is kept elsewhere, so no finalizer waits for it.
func (o Options[T, PT]) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.EnableGarbageCollection = false
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		last := &source.Last{Stale: o.Stale}
		c := Config{
			Resource: resource, Prefix: prefix, ClusterScoped: o.ClusterScoped, Default: o.Default, Report: o.Report, Last: last,
		}
		if config.EncodeVersioner != nil {
			internal := schema.GroupVersionKind{Group: resource.Group, Version: runtime.APIVersionInternal, Kind: o.Kind}
			c.Kind, _ = config.EncodeVersioner.KindForGroupVersionKinds([]schema.GroupVersionKind{internal})
		}
		s, destroy := store.Cached(cacher.Config{
			Storage: New[T, PT](o.Keeper, c), Versioner: storage.APIObjectVersioner{}, GroupResource: resource,
			EventsHistoryWindow: config.EventsHistoryWindow, ResourcePrefix: prefix, KeyFunc: key, NewFunc: newObject,
			NewListFunc: newList, GetAttrsFunc: attrs, IndexerFuncs: triggers, Indexers: indexers, Codec: config.Codec,
			Clock: upstream.SoonClock{},
		}, store.NewHistory(historyBytes), last)
		return s, sync.OnceFunc(destroy), nil
	}
	return options, nil
}
