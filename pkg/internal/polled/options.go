package polled

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdapi"
	"github.com/sailplane-dev/sailplane/pkg/internal/memorylog"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// Options has a resource be read from a source, in place of the storage of the plane.
type Options struct {
	generic.RESTOptionsGetter
	Source

	ClusterScoped bool
	// Report is called with the error of each read of the source.
	Report func(error)
	// Stale is how old an answer may be that is given while reads fail.
	Stale time.Duration
}

// historyBytes is how much of the past is kept for watches that begin there.
const historyBytes = 32 << 20

// firstVersion is the version that a store begins with. They grow with time, 2,048 each
// microsecond, which no store that runs outruns: what one store says no other one says, be it of
// before a restart or of another replica.
func firstVersion() int64 {
	return time.Now().UnixMicro()<<11 | rand.Int64N(1<<11) //nolint:gosec // replicas that start at the same time differ
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o Options) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.EnableGarbageCollection = false
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s := New(Config{
			Source: o.Source, Resource: resource, Prefix: prefix, ClusterScoped: o.ClusterScoped, Key: key, New: newObject,
			Report: o.Report, Stale: o.Stale,
			Open: func() (*Opened, error) {
				first := firstVersion()
				backend := &etcdapi.Backend{
					Name: resource.String(),
					Open: func(_ context.Context, f revision.Follower) (revision.Log, error) {
						return memorylog.New(f, historyBytes, first), nil
					},
				}
				if err := backend.Start(context.Background()); err != nil {
					return nil, err
				}
				stop := func() { _ = backend.Stop(context.Background()) } // it has no file
				stores := &store.Stores{
					Backend: &store.Backend{Client: backend.Client, Prefix: config.Prefix, CheapProgress: true},
					Objects: config.StorageObjectCountTracker,
				}
				inside, err := stores.Getter(config.Codec, config.EncodeVersioner).GetRESTOptions(resource, example)
				if err != nil {
					stop()
					return nil, err
				}
				opened, destroy, err := inside.Decorator(inside.StorageConfig, prefix, key, newObject, newList, attrs, triggers, indexers)
				if err != nil {
					stop()
					return nil, err
				}
				return &Opened{
					Interface: opened, First: uint64(first), //nolint:gosec // it is the time
					Close: func() { destroy(); stop() },
				}, nil
			},
		})
		return s, sync.OnceFunc(s.Close), nil
	}
	return options, nil
}
