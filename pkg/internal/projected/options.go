package projected

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
	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// Options has a resource be a view, in place of the storage of the plane.
type Options struct {
	generic.RESTOptionsGetter
	Projection

	Kind          string
	ClusterScoped bool
	// Report is called with the error of each read of the resource below, nil if it answered.
	Report func(error)
	// Stale is how old an answer may be that is given while the resource below fails.
	Stale time.Duration
	// Until is given what ends the watches of the view, when the plane is to stop.
	Until func(end func())
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o Options) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.EnableGarbageCollection = true // what a deletion asks for is handed on
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s := New(Config{
			Projection: o.Projection, Resource: resource, Kind: o.Kind, ClusterScoped: o.ClusterScoped, Report: o.Report,
			Stale: o.Stale,
			Cache: cacher.Config{
				Versioner: storage.APIObjectVersioner{}, GroupResource: resource, EventsHistoryWindow: config.EventsHistoryWindow,
				ResourcePrefix: prefix, KeyFunc: key, NewFunc: newObject, NewListFunc: newList, GetAttrsFunc: Attributes(attrs),
				IndexerFuncs: triggers, Indexers: indexers, Codec: config.Codec, Clock: clock.RealClock{},
			},
		})
		o.Until(s.Close)
		return store.Filtering(s, resource, newList), sync.OnceFunc(s.Close), nil
	}
	return options, nil
}
