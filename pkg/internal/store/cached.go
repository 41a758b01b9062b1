package store

import (
	"math"
	"sync"

	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// Cached puts before a store that is none of etcd's what the stores of this package have before
// them: a watch cache that is made when the resource is first listed or watched, and the filters
// of requests. history may be nil. The store is config.Storage.
func Cached(config cacher.Config, history *History) (s storage.Interface, destroy func()) {
	s0 := &spec{cache: config}
	// No version is known to be of this server, and older than the cache.
	begun := func() uint64 { return math.MaxUint64 }
	l := newLazy(config.Storage, config.GroupResource, begun, func() (*cached, error) { return s0.open(config.Storage, history) })
	return &filtering{Interface: l, resource: config.GroupResource, newList: config.NewListFunc, sizes: &sizes{}}, sync.OnceFunc(l.stop)
}
