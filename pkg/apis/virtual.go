package apis

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/polled"
)

// Query says which objects a source is asked for.
type Query struct {
	// Namespace is empty for all namespaces, and for objects that are in none.
	Namespace string
	// Name is that of one object. Empty: all of the namespace.
	Name string
}

// Source makes the objects of a [Virtual] resource. Make it with [Poll] or [Follow].
type Source[T any] struct {
	read           func(context.Context, Query) ([]T, error)
	follow         func(context.Context, chan<- Change[T]) error
	every, timeout time.Duration
}

// sourceTimeout bounds how long a source may take to answer.
const sourceTimeout = 10 * time.Second

// Poll is a source that calls a function: for each get and list, of which those that come
// meanwhile share a call, and as often as every says while somebody watches. It is not called
// while nobody asks. The function returns what is asked for, in any order; what it returns
// besides is left out. Objects need a name, and a namespace if they are in one; those without a
// UID get one that follows from these.
//
// A call that takes more than 10 seconds has failed; see [Source.Timeout]. While calls fail,
// clients get 503, and watches go on; see [Stale].
func Poll[T any](every time.Duration, read func(ctx context.Context, q Query) ([]T, error)) Source[T] {
	return Source[T]{read: read, every: every, timeout: sourceTimeout}
}

// Change is what the function of [Follow] sends.
type Change[T any] struct {
	// Object is one that is new or has changed or, with Removed, one that is no more: its name
	// and namespace are enough then.
	Object  T
	Removed bool
	// Synced says that all objects that there are have been sent, in place of an object.
	Synced bool
}

// Follow is a source that says itself what changes. The function sends all objects, then a change
// with Synced, then each object that is new, has changed or is no more, until its context ends. It
// runs while somebody asks, and a minute longer, or as long as [Stale] says; when it returns before
// that, the source has failed, and the function is called again after a pause that grows from
// 100 ms to 30 s: what it does not send before Synced is no more. Objects are as for [Poll].
//
// Clients wait for Synced, 10 seconds at most; see [Source.Timeout]. While the source fails, clients
// get 503, and watches go on; see [Stale].
func Follow[T any](follow func(ctx context.Context, changes chan<- Change[T]) error) Source[T] {
	// It is never polled.
	return Source[T]{follow: follow, every: time.Minute, timeout: sourceTimeout}
}

// Timeout bounds how long a call of the function of [Poll] may take, and how long that of [Follow]
// may take to send Synced.
func (s Source[T]) Timeout(d time.Duration) Source[T] {
	s.timeout = d
	return s
}

// Virtual defines a resource whose objects are not stored: a source makes them. Clients can get,
// list and watch them as stored ones, with selectors, pages and resource versions, which grow.
// A version of before the start, or of another replica, is answered with 410 Gone.
//
// A watch that polls does not see what came and went between two calls.
func Virtual[T, L any, PT interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}](name string, from Source[T], options ...Option) *Definition {
	d := Resource[T, L, PT, PL](name, append([]Option{Verbs("get", "list", "watch"), NoGeneration()}, options...)...)
	d.readOnly = true
	for _, verb := range d.verbs {
		if verb != "get" && verb != "list" && verb != "watch" {
			d.optionErrs = append(d.optionErrs, fmt.Errorf("Virtual: verb %q: nothing can be written", verb))
		}
	}
	switch {
	case from.read == nil && from.follow == nil:
		d.optionErrs = append(d.optionErrs,
			fmt.Errorf("Virtual: the source of %s has no function: use Poll or Follow", reflect.TypeFor[T]()))
	case from.every <= 0 || from.timeout <= 0:
		d.optionErrs = append(d.optionErrs, fmt.Errorf("Virtual: the source has the times %v and %v: want more than 0",
			from.every, from.timeout))
	}
	d.kept = func(config controlplane.BuildConfig, resource schema.GroupResource) (generic.RESTOptionsGetter, error) {
		return polled.Options{
			RESTOptionsGetter: config.Options, ClusterScoped: d.clusterScoped, Report: config.Source(resource),
			Source: sourceOf[T, PT](from, resource), Stale: d.stale,
		}, nil
	}
	return d
}

// sourceOf is a source as package polled takes it.
func sourceOf[T any, PT interface {
	*T
	Object
}](from Source[T], resource schema.GroupResource) polled.Source {
	s := polled.Source{Every: from.every, Timeout: from.timeout}
	copied := func(obj *T) runtime.Object {
		o := PT(obj).DeepCopyObject()
		if m := o.(metav1.Object); m.GetUID() == "" {
			name := fmt.Sprintf("%s/%s/%s", resource, m.GetNamespace(), m.GetName())
			m.SetUID(types.UID(uuid.NewHash(sha256.New(), uuid.Nil, []byte(name), 8).String()))
		}
		return o
	}
	if from.follow == nil {
		s.Read = func(ctx context.Context, q polled.Query) ([]runtime.Object, error) {
			found, err := from.read(ctx, Query(q))
			all := make([]runtime.Object, len(found))
			for i := range found {
				all[i] = copied(&found[i])
			}
			return all, err
		}
		return s
	}
	s.Follow = func(ctx context.Context, to chan<- polled.Change) error {
		changes, returned, passed := make(chan Change[T]), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(passed)
			for {
				select {
				case c := <-changes:
					to <- polled.Change{Object: copied(&c.Object), Removed: c.Removed, Synced: c.Synced}
				case <-returned:
					return
				}
			}
		}()
		defer func() { close(returned); <-passed }()
		return from.follow(ctx, changes)
	}
	return s
}
