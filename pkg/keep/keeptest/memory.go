package keeptest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// Object is a pointer to what a keeper keeps.
type Object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// Memory is a keep.Keeper whose objects are in a map. It is for tests, and for authors to read.
// It keeps all changes until [Memory.Forget].
type Memory[T any, PT Object[T]] struct {
	mu      sync.Mutex
	objects map[keep.Key]keep.Item[T]
	changes []keep.Change[T]
	version int64
	oldest  int64 // the first version since which all changes are known
	failure error
	calls   int
}

// NewMemory returns an empty one.
func NewMemory[T any, PT Object[T]]() *Memory[T, PT] {
	return &Memory[T, PT]{objects: map[keep.Key]keep.Item[T]{}, version: 1, oldest: 1}
}

// Forget drops what is known of the changes up to a version.
func (m *Memory[T, PT]) Forget(version int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.oldest = max(m.oldest, version)
	m.changes = slices.DeleteFunc(m.changes, func(c keep.Change[T]) bool { return c.Version <= version })
}

// Skip has the version of the whole grow, as if something was written and written back.
func (m *Memory[T, PT]) Skip() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	return m.version
}

// Fail has every call return the error, until it is nil.
func (m *Memory[T, PT]) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
}

// Break has what is kept of a key be no object.
func (m *Memory[T, PT]) Break(key keep.Key, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	o := PT(new(T))
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	m.objects[key] = keep.Item[T]{Object: o, Version: m.version, Broken: why}
	m.changes = append(m.changes, keep.Change[T]{Key: key, Version: m.version, Object: o, Broken: why})
}

// Calls is how many calls there were.
func (m *Memory[T, PT]) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// begin counts a call, and returns what it has to fail with. The caller holds the lock.
func (m *Memory[T, PT]) begin(ctx context.Context) error {
	m.calls++
	if m.failure != nil {
		return m.failure
	}
	return ctx.Err()
}

func clone[T any, PT Object[T]](o *T) *T { return PT(o).DeepCopyObject().(PT) }

// Get implements keep.Keeper.
func (m *Memory[T, PT]) Get(ctx context.Context, key keep.Key) (keep.Item[T], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(ctx); err != nil {
		return keep.Item[T]{}, err
	}
	found, ok := m.objects[key]
	if !ok {
		return found, keep.ErrNotFound
	}
	found.Object = clone[T, PT](found.Object)
	return found, nil
}

// List implements keep.Keeper.
func (m *Memory[T, PT]) List(ctx context.Context, r keep.Range) (keep.Page[T], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(ctx); err != nil {
		return keep.Page[T]{}, err
	}
	var keys []keep.Key
	for key := range m.objects {
		if (r.Namespace == "" || r.Namespace == key.Namespace) && key.Compare(r.After) > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, keep.Key.Compare)
	page := keep.Page[T]{Version: m.version}
	if r.Limit > 0 && len(keys) > r.Limit {
		keys, page.More = keys[:r.Limit], true
	}
	for _, key := range keys {
		item := m.objects[key]
		item.Object = clone[T, PT](item.Object)
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// Put implements keep.Keeper.
func (m *Memory[T, PT]) Put(ctx context.Context, object *T, ifVersion int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keep.Key{Namespace: PT(object).GetNamespace(), Name: PT(object).GetName()}
	if err := m.check(ctx, key, ifVersion); err != nil {
		return 0, err
	}
	m.version++
	m.objects[key] = keep.Item[T]{Object: object, Version: m.version}
	m.changes = append(m.changes, keep.Change[T]{Key: key, Version: m.version, Object: object})
	return m.version, nil
}

// Remove implements keep.Keeper.
func (m *Memory[T, PT]) Remove(ctx context.Context, key keep.Key, ifVersion int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, key, ifVersion); err != nil {
		return 0, err
	}
	m.version++
	delete(m.objects, key)
	m.changes = append(m.changes, keep.Change[T]{Key: key, Version: m.version})
	return m.version, nil
}

// check returns the error of a write. The caller holds the lock.
func (m *Memory[T, PT]) check(ctx context.Context, key keep.Key, ifVersion int64) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	switch found, ok := m.objects[key]; {
	case found.Version == ifVersion:
		return nil
	case !ok:
		return keep.ErrNotFound
	}
	return keep.ErrConflict
}

// batch is how many changes are returned at once.
const batch = 100

// Changes implements keep.Keeper.
func (m *Memory[T, PT]) Changes(ctx context.Context, since int64) (keep.Batch[T], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(ctx); err != nil {
		return keep.Batch[T]{}, err
	}
	if since < m.oldest || since > m.version {
		return keep.Batch[T]{}, keep.ErrExpired
	}
	first, _ := slices.BinarySearchFunc(m.changes, since+1, func(c keep.Change[T], version int64) int {
		return cmp.Compare(c.Version, version)
	})
	b := keep.Batch[T]{Version: m.version}
	for _, c := range m.changes[first:] {
		if len(b.Changes) == batch {
			b.Version, b.More = b.Changes[batch-1].Version, true
			break
		}
		if c.Object != nil {
			c.Object = clone[T, PT](c.Object)
		}
		b.Changes = append(b.Changes, c)
	}
	return b, nil
}
