package store

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// elsewhereHistory is how many bytes of the past a [Cache] keeps for watches that begin there.
const elsewhereHistory = 32 << 20

// Cache is a watch cache of objects that are no keys of the plane's storage.
type Cache struct {
	*cached

	now func(context.Context) (uint64, error)
}

// NewCache makes a watch cache and fills it from a source, of which it asks for a list of all and
// for watches. Stop ends it.
func NewCache(config cacher.Config, source storage.Interface) (*Cache, error) {
	s := &spec{config: &storagebackend.ConfigForResource{GroupResource: config.GroupResource}, cache: config}
	c, err := s.open(source, NewHistory(elsewhereHistory))
	if err != nil {
		return nil, err
	}
	return &Cache{cached: c, now: source.GetCurrentResourceVersion}, nil
}

// Wait returns whether the cache is filled. It waits for that at most a second.
func (c *Cache) Wait(ctx context.Context) bool { return c.wait(ctx) }

// Ready tells whether the cache is filled.
func (c *Cache) Ready() bool { return c.cacher.Ready() }

// Watch watches from a version. A client that is behind goes on where it was, as long as the
// cache has what it missed.
func (c *Cache) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return resumed(ctx, opts, resumable{
		open: func(opts storage.ListOptions) (watch.Interface, error) { return c.cacher.Watch(ctx, key, opts) },
		now: func() (uint64, error) {
			ctx, cancel := context.WithTimeout(ctx, cacheWait)
			defer cancel()
			return c.now(ctx)
		},
	})
}

// Stop ends the cache.
func (c *Cache) Stop() { c.stop() }

// Filtering applies the filters of requests to a store of objects that are kept elsewhere, and has
// lists wait for the memory that they take.
func Filtering(s storage.Interface, resource schema.GroupResource, newList func() runtime.Object) storage.Interface {
	all := &sizes{}
	return &filtering{Interface: measured{s, all}, resource: resource, newList: newList, sizes: all}
}

// measured is a store that does not know how large its objects are before they are listed.
type measured struct {
	storage.Interface
	sizes *sizes
}

// GetList implements storage.Interface.
func (m measured) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := m.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	return meta.EachListItem(list, func(obj runtime.Object) error {
		m.sizes.see(int(sizeOf(obj)))
		return nil
	})
}
