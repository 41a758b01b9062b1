package polled

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"path"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// objects are those that are in the store, as the source made them.
type objects struct {
	mu  sync.Mutex
	all map[string]runtime.Object // by key
}

// write has the store have what was found for a query, and nothing else that the query asks for.
func (l *life) write(ctx context.Context, q Query, found []runtime.Object) error {
	wanted := make(map[string]runtime.Object, len(found))
	for i, o := range found {
		key, err := l.keyOf(o)
		if err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		if !l.asks(q, key) {
			continue
		}
		if wanted[key] != nil {
			return fmt.Errorf("object %d: there is another one of its name, %s", i, key)
		}
		wanted[key] = o
	}
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	for key := range l.known(q) {
		if wanted[key] != nil || !l.asks(q, key) {
			continue
		}
		err := l.opened.Delete(ctx, key, l.config.New(), nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		if err != nil && !storage.IsNotFound(err) {
			return err
		}
		delete(l.objects.all, key)
	}
	for key, o := range wanted {
		before := l.objects.all[key]
		if before != nil && equality.Semantic.DeepEqual(before, o) {
			continue
		}
		if err := l.put(ctx, key, o, before == nil); err != nil {
			return err
		}
		l.objects.all[key] = o
	}
	return nil
}

// known are the keys of what is in the store, or the one that a query asks for. The caller holds
// the lock.
func (l *life) known(q Query) iter.Seq[string] {
	if q.Name == "" {
		return maps.Keys(l.objects.all)
	}
	key := path.Join(l.config.Prefix, q.Namespace, q.Name)
	return func(yield func(string) bool) {
		if l.objects.all[key] != nil {
			yield(key)
		}
	}
}

// put writes an object that is new, or another one than before.
func (l *life) put(ctx context.Context, key string, o runtime.Object, fresh bool) error {
	if fresh {
		return l.opened.Create(ctx, key, o.DeepCopyObject(), l.config.New(), 0)
	}
	return l.opened.GuaranteedUpdate(ctx, key, l.config.New(), true, nil,
		func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
			return o.DeepCopyObject(), nil, nil
		}, nil)
}

// asks tells whether a query asks for what has a key.
func (l *life) asks(q Query, key string) bool {
	of := l.query(key)
	return (q.Namespace == "" || q.Namespace == of.Namespace) && (q.Name == "" || q.Name == of.Name)
}

// keyOf prepares an object of the source, and returns its key.
func (l *life) keyOf(o runtime.Object) (string, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return "", err
	}
	if m.GetName() == "" {
		return "", fmt.Errorf("it has no name")
	}
	if (m.GetNamespace() == "") != l.config.ClusterScoped {
		return "", fmt.Errorf("%s: its namespace is %q", m.GetName(), m.GetNamespace())
	}
	m.SetResourceVersion("")
	return l.config.Key(o)
}

// query is what the key of an object asks for.
func (l *life) query(key string) Query { return l.config.query(key) }
