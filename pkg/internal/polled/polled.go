// Package polled serves objects that a function makes as if they were stored: with lists in
// pages, selectors, and watches from a version.
//
// What the function returns is compared with what it returned before, and the changes are
// written to a store of the resource's own, in memory, behind upstream's watch cache. Versions
// are integers that grow, over restarts too: they begin with the time. One that this store cannot
// know, because it is of before the start or of another replica, is answered with 410.
//
// Nothing runs while nobody asks: the store is made when it is used, and ends some time after.
package polled

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// Query says which objects are asked for.
type Query struct {
	// Namespace is empty for all namespaces, and for objects that are in none.
	Namespace string
	// Name is that of one object. Empty: all of the namespace.
	Name string
}

// Source makes objects: it has Read, or Follow.
type Source struct {
	// Read returns what a query asks for. What else it returns is left out. The objects
	// belong to the caller.
	Read func(ctx context.Context, q Query) ([]runtime.Object, error)
	// Every is the pause between two reads while somebody watches.
	Every time.Duration
	// Follow sends all objects, then a change that says so, then what changes, until the
	// context ends. It is called again some time after it returned. The objects belong to the
	// receiver.
	Follow func(ctx context.Context, changes chan<- Change) error
	// Timeout bounds a read, and how long Follow takes to send all objects.
	Timeout time.Duration
}

// Change is what a source sends that is followed.
type Change struct {
	// Object is one that is new or has changed or, with Removed, one that is no more.
	Object  runtime.Object
	Removed bool
	// Synced says that all objects have been sent, in place of an object.
	Synced bool
}

// Config makes a [Store].
type Config struct {
	Source

	Resource schema.GroupResource
	// Prefix starts the keys of the resource.
	Prefix string
	// ClusterScoped objects have no namespace in their keys.
	ClusterScoped bool
	Key           func(runtime.Object) (string, error)
	New           func() runtime.Object
	// Report is called with the error of each read.
	Report func(error)
	// Stale is how old an answer may be that is given while reads fail; 0: none is given. If it
	// is not, each read is for all objects.
	Stale time.Duration
	// Open makes an empty store, whose versions are later than those of all before it.
	Open func() (*Opened, error)
}

// Opened is an empty store of the resource in memory.
type Opened struct {
	storage.Interface

	// First is the version that it began with.
	First uint64
	Close func()
}

// Store implements storage.Interface, for reads.
type Store struct {
	Config

	// lives are the stores in memory, one at a time while somebody asks.
	lives source.Shared[*life]
}

var _ storage.Interface = (*Store)(nil)

// New returns the store of a resource. It runs nothing.
func New(c Config) *Store {
	s := &Store{Config: c}
	s.lives.Open = func() (*life, error) {
		opened, err := s.Open()
		if err != nil {
			return nil, err
		}
		return newLife(&s.Config, opened), nil
	}
	s.lives.Close = (*life).close
	s.lives.Rest = (&source.Last{Stale: c.Stale}).Rest()
	return s
}

// Close ends what runs.
func (s *Store) Close() { s.lives.End() }

// read calls f with a store that has what the source says now.
func (s *Store) read(ctx context.Context, key string, f func(*life) error) error {
	l, done, err := s.lives.Use()
	if err != nil {
		return err
	}
	defer done()
	if err := l.refresh(ctx, s.query(key)); err != nil {
		return err
	}
	return f(l)
}

// query is what a key asks for.
func (c *Config) query(key string) Query {
	rest, _ := strings.CutPrefix(strings.Trim(key, "/"), strings.Trim(c.Prefix, "/"))
	rest = strings.Trim(rest, "/")
	if c.ClusterScoped {
		return Query{Name: rest}
	}
	namespace, name, _ := strings.Cut(rest, "/")
	return Query{Namespace: namespace, Name: name}
}

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return s.read(ctx, key, func(l *life) error {
		if err := l.knows(ctx, opts.ResourceVersion); err != nil {
			return err
		}
		return l.opened.Get(ctx, key, opts, out)
	})
}

// GetList implements storage.Interface.
func (s *Store) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	return s.read(ctx, key, func(l *life) error {
		version := opts.ResourceVersion
		if token := opts.Predicate.Continue; token != "" {
			_, at, err := storage.DecodeContinue(token, key)
			if err == nil && at > 0 {
				version = fmt.Sprint(at)
			}
		}
		if err := l.knows(ctx, version); err != nil {
			return err
		}
		return l.opened.GetList(ctx, key, opts, list)
	})
}

// Watch implements storage.Interface. The source is read as long as somebody watches.
func (s *Store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	l, done, err := s.lives.Use()
	if err != nil {
		return nil, err
	}
	if err := l.refresh(ctx, Query{}); err != nil {
		done()
		return nil, err
	}
	if err := l.knows(ctx, opts.ResourceVersion); err != nil {
		done()
		return nil, err
	}
	unwatch := l.watched()
	w, err := l.opened.Watch(ctx, key, opts)
	if err != nil {
		unwatch()
		done()
		return nil, err
	}
	return source.Watch(w, sync.OnceFunc(func() { unwatch(); done() })), nil
}

// readOnly is the error of writes, which no verb leads to.
func (s *Store) readOnly(verb string) error { return apierrors.NewMethodNotSupported(s.Resource, verb) }

// Create implements storage.Interface.
func (s *Store) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return s.readOnly("create")
}

// Delete implements storage.Interface.
func (s *Store) Delete(
	context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object, storage.DeleteOptions,
) error {
	return s.readOnly("delete")
}

// GuaranteedUpdate implements storage.Interface.
func (s *Store) GuaranteedUpdate(
	context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc, runtime.Object,
) error {
	return s.readOnly("update")
}

// Versioner implements storage.Interface.
func (*Store) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// present calls f if there is a store.
func (s *Store) present(f func(storage.Interface) error) error {
	l, done, found := s.lives.Peek()
	if !found {
		return nil
	}
	defer done()
	return f(l.opened)
}

// Stats implements storage.Interface: a store that does not run has nothing.
func (s *Store) Stats(ctx context.Context) (stats storage.Stats, err error) {
	err = s.present(func(now storage.Interface) (err error) {
		stats, err = now.Stats(ctx)
		return err
	})
	return stats, err
}

// ReadinessCheck implements storage.Interface.
func (s *Store) ReadinessCheck() error { return s.present(storage.Interface.ReadinessCheck) }

// RequestWatchProgress implements storage.Interface.
func (s *Store) RequestWatchProgress(ctx context.Context) error {
	return s.present(func(now storage.Interface) error { return now.RequestWatchProgress(ctx) })
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *Store) GetCurrentResourceVersion(ctx context.Context) (version uint64, err error) {
	l, done, err := s.lives.Use()
	if err != nil {
		return 0, err
	}
	defer done()
	return l.opened.GetCurrentResourceVersion(ctx)
}

// EnableResourceSizeEstimation implements storage.Interface: the store inside does that.
func (*Store) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface.
func (s *Store) CompactRevision() (revision int64) {
	_ = s.present(func(now storage.Interface) error {
		revision = now.CompactRevision()
		return nil
	})
	return revision
}

// expired is the answer to a version that a store cannot know.
func expired(version string) error {
	return apierrors.NewResourceExpired(fmt.Sprintf(
		"resource version %s is of another time or another server: list again", version))
}
