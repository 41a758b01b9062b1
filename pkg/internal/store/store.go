// Package store makes the stores of API resources: for each an etcd3 store with a
// watch cache, on a client of the plane's storage.
//
// It stands in for k8s.io/apiserver's storage factory, which dials one gRPC
// connection per resource, keeps process-wide compactors by endpoint, and
// cannot reach a storage that lives in the process.
package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// Backend is what the stores of all planes of a server share.
type Backend struct {
	// Client returns a client of the storage with its own Watcher; a store closes its
	// client.
	Client func() (*clientv3.Client, error)
	// Prefix starts every key, "/registry".
	Prefix string
	// Since is the revision from which on what is stored has one history, which the storage keeps
	// until it says that it is compacted. 0: that is known of what a plane itself serves only.
	Since int64
	// Shared tells that servers of other processes use the storage too.
	Shared bool
	// Fences tells that what elected work writes is kept within its term. The storage
	// is shared, and compares several keys in a transaction.
	Fences bool
	// CheapProgress tells that it costs microseconds to ask how far a watch is.
	CheapProgress bool
	// Transformers turn encoded objects into stored values, and back. May be nil.
	Transformers value.ResourceTransformers
	// Compactor tells the revision below which history is gone. May be nil.
	Compactor etcd3.Compactor
	// History bounds what watch caches keep of the past. Nil: nothing does.
	History *History
}

// Stores are those of one plane.
type Stores struct {
	*Backend
	// Plane is the name of the plane, empty for the root plane.
	Plane string
	// CollectsGarbage tells that somebody removes the finalizers of deletes with
	// propagation policy Orphan or Foreground. If not, stores add none.
	CollectsGarbage bool
	// Objects counts the stored objects per resource for request width
	// estimates. May be nil.
	Objects flowcontrolrequest.StorageObjectCountTracker
	// Guards are called before each object is stored.
	Guards []Guard
	// Bodies bound what is written, and how deep what is read may nest.
	Bodies *bodies.Checker

	begun atomic.Uint64 // the revision from which on watches may ask the storage
	mu    sync.Mutex
	lazy  map[*lazy]bool
	has   map[schema.GroupResource]int // how many of them a resource has
}

// Begin notes from which revision on a watch may go on: the one before the plane serves, unless more
// is known of the storage. Call it before the plane is ready.
func (b *Stores) Begin(ctx context.Context) error {
	if b.Since > 0 {
		b.begun.Store(uint64(b.Since))
		return nil
	}
	client, err := b.Client()
	if err != nil {
		return fmt.Errorf("storage client: %w", err)
	}
	defer client.Close() // the error only says that Close ended the context
	r, err := client.Get(ctx, b.Prefix, clientv3.WithCountOnly(), clientv3.WithLimit(1))
	if err != nil {
		return fmt.Errorf("read the revision of the storage: %w", err)
	}
	b.begun.Store(uint64(r.Header.Revision)) //nolint:gosec // no revision is negative
	return nil
}

// Has tells whether there is a store of the resource.
func (b *Stores) Has(resource schema.GroupResource) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.has[resource] > 0
}

// all returns the present stores.
func (b *Stores) all() []*lazy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.lazy))
}

func (b *Stores) add(l *lazy) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lazy == nil {
		b.lazy, b.has = map[*lazy]bool{}, map[schema.GroupResource]int{}
	}
	b.lazy[l] = true
	b.has[l.resource]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.lazy, l)
		if b.has[l.resource]--; b.has[l.resource] == 0 {
			delete(b.has, l.resource)
		}
	}
}

// Getter returns REST options for resources that are stored with the codec,
// which encodes to the version that is kept and decodes to the internal one.
func (b *Stores) Getter(codec runtime.Codec, encode runtime.GroupVersioner) generic.RESTOptionsGetter {
	return &getter{stores: b, codec: codec, encode: encode}
}

type getter struct {
	stores *Stores
	codec  runtime.Codec
	encode runtime.GroupVersioner
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g *getter) GetRESTOptions(gr schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig(g.stores.Prefix, g.codec)
	config.EncodeVersioner = g.encode
	config.StorageObjectCountTracker = g.stores.Objects
	config.Transformer = g.stores.transformer(gr)
	return generic.RESTOptions{
		StorageConfig:             config.ForResource(gr),
		Decorator:                 g.decorated,
		EnableGarbageCollection:   g.stores.CollectsGarbage,
		DeleteCollectionWorkers:   1,
		ResourcePrefix:            g.stores.space().Of(gr),
		StorageObjectCountTracker: g.stores.Objects,
	}, nil
}

// space is where the plane's objects are stored.
func (b *Stores) space() keys.Space { return keys.Space{Prefix: b.Prefix, Plane: b.Plane} }

// decorated is a generic.StorageDecorator: a store behind a watch cache, which is
// made when needed.
//
//nolint:revive // the parameters are generic.StorageDecorator's
func (g *getter) decorated(
	config *storagebackend.ConfigForResource, prefix string,
	keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	b := g.stores
	s := &spec{config: config, sizes: &sizes{}, cache: cacher.Config{
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      prefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attrs,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
		Clock:               b.clock(),
	}}
	config.Transformer = sizing{config.Transformer, s.sizes}
	raw, closeRaw, err := b.raw(s)
	if err != nil {
		return nil, nil, err
	}
	l := newLazy(raw, config.GroupResource, b.begun.Load, func() (*cached, error) { return s.open(raw, b.History) })
	remove := b.add(l)
	destroy := sync.OnceFunc(func() { remove(); l.stop(); closeRaw() })
	return &filtering{Interface: l, resource: config.GroupResource, newList: newListFunc, sizes: s.sizes}, destroy, nil
}

// spec is what makes the store of a resource.
type spec struct {
	config *storagebackend.ConfigForResource
	cache  cacher.Config // without its source
	sizes  *sizes
}

// open puts a watch cache before a store.
func (s *spec) open(raw storage.Interface, history *History) (*cached, error) {
	source, kept := upstream.NewCacheSource(raw), &latePast{}
	config := s.cache
	config.Storage = expiring{source, kept, watchlist.DoesClientNotSupportWatchListSemantics(raw)}
	config.KeyFunc = source.Count(config.KeyFunc)
	config.GetAttrsFunc = kept.watched(config.GetAttrsFunc)
	c, err := cacher.NewCacherFromConfig(config)
	if err != nil {
		return nil, fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(c, raw)
	opened := &cached{Interface: delegator, cacher: c, stop: func() {
		delegator.Stop()
		source.End()
		c.Stop()
		history.remove(kept.Load())
	}}
	kept.Store(history.add(c))
	return opened, nil
}

// clock decides when watch caches ask their store how far it is.
func (b *Backend) clock() clock.WithTicker {
	if b.CheapProgress {
		return upstream.SoonClock{}
	}
	return clock.RealClock{}
}

// raw returns the store without a cache, and what closes it.
func (b *Stores) raw(s *spec) (*readable, func(), error) {
	config := s.config
	client, err := b.Client()
	if err != nil {
		return nil, nil, fmt.Errorf("storage client for %s: %w", config.GroupResource, err)
	}
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	if b.Fences {
		client.KV = fenced{client.KV}
	}
	wrapped := &kubernetes.Client{Client: client}
	var calls kubernetes.Interface = wrapped
	if len(b.Guards) > 0 {
		calls = &guarded{
			Interface: calls, resource: config.GroupResource, guards: b.Guards,
			root: strings.TrimSuffix(config.Prefix, "/") + "/" + strings.Trim(s.cache.ResourcePrefix, "/") + "/",
		}
	}
	wrapped.Kubernetes = limited{calls, s.sizes}
	versioner := storage.APIObjectVersioner{}
	decoder := newDecoder(etcd3.NewDefaultDecoder(config.Codec, versioner), b.Bodies)
	raw, err := etcd3.New(wrapped, b.Compactor, bounded{config.Codec, b.Bodies}, s.cache.NewFunc, s.cache.NewListFunc, config.Prefix,
		s.cache.ResourcePrefix, config.GroupResource, config.Transformer, config.LeaseManagerConfig,
		decoder, versioner)
	if err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("store of %s: %w", config.GroupResource, err)
	}
	top := &readable{
		Interface: explaining{raw}, resource: config.GroupResource, prefix: s.cache.ResourcePrefix, mark: decoder.mark,
		root: strings.TrimSuffix(config.Prefix, "/") + "/", client: wrapped,
	}
	return top, func() { raw.Close(); _ = client.Close() }, nil
}
