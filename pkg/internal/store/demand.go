package store

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// uses are the stores of a resource that are made on demand.
type uses struct {
	stores int
	first  chan struct{} // closed when one is used
	used   func()        // closes it
}

// declare notes a store that may not be made yet. Call used when it is.
func (b *Stores) declare(resource schema.GroupResource) (used, forget func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.declared == nil {
		b.declared = map[schema.GroupResource]*uses{}
	}
	u := b.declared[resource]
	if u == nil {
		u = &uses{first: make(chan struct{})}
		u.used = sync.OnceFunc(func() { close(u.first) })
		b.declared[resource] = u
	}
	u.stores++
	return u.used, sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		u.stores--
	})
}

// Unused returns what is closed at the first use of a resource, and the revision
// up to which it has no objects; nil if it has some, was used, or may be by others.
func (b *Stores) Unused(ctx context.Context, resource schema.GroupResource) (used <-chan struct{}, revision int64, err error) {
	b.mu.Lock()
	u := b.declared[resource]
	b.mu.Unlock()
	if u == nil || b.Shared {
		return nil, 0, nil
	}
	select {
	case <-u.first:
		return nil, 0, nil
	default:
	}
	client, err := b.Client()
	if err != nil {
		return nil, 0, fmt.Errorf("storage client for %s: %w", resource, err)
	}
	defer client.Close() // tells only that its context was ended by it
	found, err := client.Get(ctx, b.space().Range(resource), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, 0, fmt.Errorf("count %s: %w", resource, err)
	}
	if found.Count > 0 {
		return nil, 0, nil
	}
	return u.first, found.Header.Revision, nil
}

// endedError is what a store says that is used after its end.
type endedError struct{}

func (endedError) Error() string {
	return "the store is closed: the server stops, or the resource is served no more"
}

// demanded is a store that is made when it is first used.
type demanded struct {
	open func() (storage.Interface, factory.DestroyFunc, error)
	used func()

	mu    sync.Mutex
	store storage.Interface // nil before
	close factory.DestroyFunc
	ended bool
}

var _ storage.Interface = &demanded{}

// use returns the store. One that could not be made is tried again.
func (d *demanded) use() (storage.Interface, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, endedError{}
	}
	if d.store == nil {
		s, destroy, err := d.open()
		if err != nil {
			return nil, err
		}
		d.store, d.close = s, destroy
		d.used()
	}
	return d.store, nil
}

// peek returns the store, or nil when there is none.
func (d *demanded) peek() storage.Interface {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.store
}

func (d *demanded) destroy() {
	d.mu.Lock()
	destroy, ended := d.close, d.ended
	d.ended = true
	d.mu.Unlock()
	if destroy != nil && !ended {
		destroy()
	}
}

// Versioner implements storage.Interface.
func (*demanded) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// Create implements storage.Interface.
func (d *demanded) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	s, err := d.use()
	if err != nil {
		return err
	}
	return s.Create(ctx, key, obj, out, ttl)
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (d *demanded) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	s, err := d.use()
	if err != nil {
		return err
	}
	return s.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// Watch implements storage.Interface.
func (d *demanded) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s, err := d.use()
	if err != nil {
		return nil, err
	}
	return s.Watch(ctx, key, opts)
}

// Get implements storage.Interface.
func (d *demanded) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	s, err := d.use()
	if err != nil {
		return err
	}
	return s.Get(ctx, key, opts, out)
}

// GetList implements storage.Interface.
func (d *demanded) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	s, err := d.use()
	if err != nil {
		return err
	}
	return s.GetList(ctx, key, opts, out)
}

// GuaranteedUpdate implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (d *demanded) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	s, err := d.use()
	if err != nil {
		return err
	}
	return s.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
}

// Stats implements storage.Interface.
func (d *demanded) Stats(ctx context.Context) (storage.Stats, error) {
	s, err := d.use()
	if err != nil {
		return storage.Stats{}, err
	}
	return s.Stats(ctx)
}

// ReadinessCheck implements storage.Interface. A store that nobody uses keeps
// nobody waiting.
func (d *demanded) ReadinessCheck() error {
	if s := d.peek(); s != nil {
		return s.ReadinessCheck()
	}
	return nil
}

// RequestWatchProgress implements storage.Interface.
func (d *demanded) RequestWatchProgress(ctx context.Context) error {
	s, err := d.use()
	if err != nil {
		return err
	}
	return s.RequestWatchProgress(ctx)
}

// GetCurrentResourceVersion implements storage.Interface.
func (d *demanded) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	s, err := d.use()
	if err != nil {
		return 0, err
	}
	return s.GetCurrentResourceVersion(ctx)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (d *demanded) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	s, err := d.use()
	if err != nil {
		return err
	}
	return s.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface.
func (d *demanded) CompactRevision() int64 {
	if s := d.peek(); s != nil {
		return s.CompactRevision()
	}
	return 0
}
