// Package store makes the storage of one API resource after another: an etcd3
// store with a watch cache, on a client of the plane's storage.
//
// It stands in for k8s.io/apiserver's storage factory, which dials one gRPC
// connection per resource, keeps process-wide compactors by endpoint, and
// cannot reach a storage that lives in the process.
package store

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

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
	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// Backend is what the stores of all planes of a server share.
type Backend struct {
	// Client returns a client of the storage with its own Watcher; a store
	// closes the one it got.
	Client func() (*clientv3.Client, error)
	// Prefix starts every key, "/registry".
	Prefix string
	// Shared tells that servers of other processes use the storage too.
	Shared bool
	// CheapProgress tells that how far a watch is costs microseconds to ask.
	CheapProgress bool
	// Transformers turn what is encoded into what is stored, and back. May be nil.
	Transformers value.ResourceTransformers
	// Compactor tells the revision below which history is gone. May be nil.
	Compactor etcd3.Compactor
}

// Stores are those of one plane.
type Stores struct {
	*Backend
	// Plane is the name of the plane, empty for the root plane.
	Plane string
	// CollectsGarbage tells that somebody removes the finalizers of deletes with
	// propagation policy Orphan or Foreground. Without, stores add none.
	CollectsGarbage bool
	// OnDemand has each store made when it is first used.
	OnDemand bool
	// Objects counts the stored objects per resource for request width
	// estimates. May be nil.
	Objects flowcontrolrequest.StorageObjectCountTracker

	mu       sync.Mutex
	caches   map[*cacher.Cacher]tracked
	declared map[schema.GroupResource]*uses // stores that are made on demand
}

// Has tells whether there is a store of the resource.
func (b *Stores) Has(resource schema.GroupResource) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.caches {
		if r.resource == resource {
			return true
		}
	}
	u := b.declared[resource]
	return u != nil && u.stores > 0
}

// Await waits until the watch caches of every store are filled, or says which
// is not because it was stopped. It does not wait for one that has met a value
// nobody can read: requests for it say so; nor for one that is held back because
// it has many objects: Fill fills it.
func (b *Stores) Await(ctx context.Context) error {
	b.mu.Lock()
	caches := maps.Clone(b.caches)
	b.mu.Unlock()
	for c, t := range caches {
		if err := t.await(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", t.resource, err)
		}
	}
	return nil
}

// Fill has the watch caches filled that were held back, in the background.
func (b *Stores) Fill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.caches {
		t.held.want()
	}
}

func (b *Stores) track(c *cacher.Cacher, t tracked) (untrack func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.caches == nil {
		b.caches = map[*cacher.Cacher]tracked{}
	}
	b.caches[c] = t
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.caches, c)
	}
}

// Getter returns REST options for resources that are stored with the codec,
// which encodes to the version that is kept and decodes to the internal one.
func (b *Stores) Getter(codec runtime.Codec, encode runtime.GroupVersioner) generic.RESTOptionsGetter {
	return &getter{stores: b, codec: codec, encode: encode}
}

// LateGetter is Getter for resources of which most are listed and watched by
// nobody: their watch caches are made when somebody does.
func (b *Stores) LateGetter(codec runtime.Codec, encode runtime.GroupVersioner) generic.RESTOptionsGetter {
	return &getter{stores: b, codec: codec, encode: encode, late: true}
}

type getter struct {
	stores *Stores
	codec  runtime.Codec
	encode runtime.GroupVersioner
	late   bool
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

// space is where the plane's objects lie.
func (b *Stores) space() keys.Space { return keys.Space{Prefix: b.Prefix, Plane: b.Plane} }

// decorated is a generic.StorageDecorator: a store behind a watch cache, made now
// or when it is first used.
//
//nolint:revive // the parameters are generic.StorageDecorator's
func (g *getter) decorated(
	config *storagebackend.ConfigForResource, prefix string,
	keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	b := g.stores
	s := &spec{config: config, cache: cacher.Config{
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
	open := func() (storage.Interface, factory.DestroyFunc, error) { return b.open(s, g.late) }
	if !b.OnDemand && !g.late {
		return open()
	}
	used, forget := b.declare(config.GroupResource)
	if !b.OnDemand {
		opened, destroy, err := open()
		used()
		return opened, func() { destroy(); forget() }, err
	}
	d := &demanded{open: open, used: used}
	return d, func() { d.destroy(); forget() }, nil
}

// spec is what the store of a resource is made of.
type spec struct {
	config *storagebackend.ConfigForResource
	cache  cacher.Config // without what it is filled from
}

// open makes an etcd3 store behind a watch cache.
func (b *Stores) open(s *spec, isLate bool) (storage.Interface, factory.DestroyFunc, error) {
	raw, closeRaw, err := b.raw(s)
	if err != nil {
		return nil, nil, err
	}
	var top storage.Interface
	var stop func()
	if isLate {
		l := &late{Interface: raw, open: func() (*waiting, func(), error) { return b.cached(s, raw, true) }}
		top, stop = l, l.stop
	} else if top, stop, err = b.cached(s, raw, false); err != nil {
		closeRaw()
		return nil, nil, err
	}
	destroy := sync.OnceFunc(func() { stop(); closeRaw() })
	return &filtering{Interface: top, resource: s.config.GroupResource, newList: s.cache.NewListFunc}, destroy, nil
}

// cached puts a watch cache before a store. What it returns as well ends the cache.
func (b *Stores) cached(s *spec, raw *readable, isLate bool) (*waiting, func(), error) {
	held := newHeld(raw, raw.count)
	source := upstream.NewCacheSource(held)
	config := s.cache
	config.Storage = source
	config.KeyFunc = source.Count(config.KeyFunc)
	c, err := cacher.NewCacherFromConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(c, raw)
	untrack := b.track(c, trackedOf(s.config, held))
	stop := func() {
		untrack()
		held.end()
		delegator.Stop()
		source.End()
		c.Stop()
	}
	return &waiting{Interface: delegator, cacher: c, raw: raw, spec: s, held: held, isLate: isLate}, stop, nil
}

// clock is when watch caches ask their store how far it is.
func (b *Backend) clock() clock.WithTicker {
	if b.CheapProgress {
		return upstream.SoonClock{}
	}
	return clock.RealClock{}
}

// raw is the store without a cache, and what closes it.
func (b *Stores) raw(s *spec) (*readable, func(), error) {
	config := s.config
	client, err := b.Client()
	if err != nil {
		return nil, nil, fmt.Errorf("storage client for %s: %w", config.GroupResource, err)
	}
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	wrapped := &kubernetes.Client{Client: client}
	wrapped.Kubernetes = limited{wrapped}
	versioner := storage.APIObjectVersioner{}
	decoder := newDecoder(etcd3.NewDefaultDecoder(config.Codec, versioner))
	raw, err := etcd3.New(wrapped, b.Compactor, config.Codec, s.cache.NewFunc, s.cache.NewListFunc, config.Prefix,
		s.cache.ResourcePrefix, config.GroupResource, config.Transformer, config.LeaseManagerConfig,
		decoder, versioner)
	if err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("store of %s: %w", config.GroupResource, err)
	}
	top := &readable{
		Interface: telling{raw}, resource: config.GroupResource, prefix: s.cache.ResourcePrefix, mark: decoder.mark,
		root: strings.TrimSuffix(config.Prefix, "/") + "/", client: wrapped,
	}
	return top, func() { raw.Close(); _ = client.Close() }, nil
}
