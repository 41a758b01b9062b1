// Package kept serves objects that a keep.Keeper keeps as if they were in the storage of the
// plane: it is a storage.Interface over a Keeper, with objects in place of bytes. A watch cache
// stands before it, which answers lists of the past and selects for watches.
package kept

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// Object is a pointer to what a keeper keeps.
type Object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// Config says what a [Store] serves.
type Config struct {
	Resource schema.GroupResource
	// Kind is set in what the keeper gets. Empty: none is.
	Kind schema.GroupVersionKind
	// Prefix starts the keys of the resource.
	Prefix string
	// ClusterScoped objects are in no namespace.
	ClusterScoped bool
	// Default fills in what an object lacks that the keeper returned. May be nil.
	Default func(runtime.Object)
	// Report is called with the error of each call of the keeper, nil for one that was answered.
	// May be nil.
	Report func(error)
	// Timeout bounds each call of the keeper, but for lists without a limit: those may take
	// six times as long. 0: 10 seconds.
	Timeout time.Duration
	// Last learns how recent what a watch sent is, and that the keeper fails. May be nil.
	Last *source.Last
	// Poll is the pause between two looks for changes while somebody watches. 0: 200 ms.
	Poll time.Duration
}

const (
	callTimeout = 10 * time.Second
	pollPeriod  = 200 * time.Millisecond
	// maxCalls is how many calls of the keeper may run, those too that nobody waits for any more.
	maxCalls = 128
)

// Store implements storage.Interface.
type Store[T any, PT Object[T]] struct {
	Config

	keeper  keep.Keeper[T]
	slots   chan struct{}
	changed signal.Change // announced when a watch should look
	asked   atomic.Uint64 // counts the requests for progress
	broken  *broken
}

// New returns the store of a resource. It runs nothing.
func New[T any, PT Object[T]](keeper keep.Keeper[T], c Config) *Store[T, PT] {
	c.Prefix = strings.TrimSuffix(c.Prefix, "/") + "/"
	if c.Timeout == 0 {
		c.Timeout = callTimeout
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	if c.Last == nil {
		c.Last = &source.Last{}
	}
	if c.Poll == 0 {
		c.Poll = pollPeriod
	}
	b := newBroken(c.Resource, c.Report, keeper)
	c.Report = b.report
	return &Store[T, PT]{Config: c, keeper: keeper, slots: make(chan struct{}, maxCalls), broken: b}
}

// call calls the keeper. A call that does not come back in time is left alone: it has a goroutine of
// its own, unless it comes back at once anyway.
func call[R any](ctx context.Context, c *Config, slots chan struct{}, atOnce bool, f func(context.Context) (R, error)) (R, error) {
	type answer struct {
		result R
		err    error
	}
	inTime, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var zero R
	late := func() (R, error) {
		if err := ctx.Err(); err != nil {
			return zero, err
		}
		return zero, c.unavailable(fmt.Errorf("no answer in %v: %w", c.Timeout, context.DeadlineExceeded))
	}
	select {
	case slots <- struct{}{}:
	case <-inTime.Done():
		return late()
	}
	run := func() (a answer) {
		defer func() { <-slots }()
		defer func() {
			if why := recover(); why != nil {
				a = answer{err: fmt.Errorf("panic: %v", why)}
			}
		}()
		a.result, a.err = f(inTime)
		return a
	}
	var a answer
	if atOnce {
		a = run()
	} else {
		answers := make(chan answer, 1)
		go func() { answers <- run() }()
		select {
		case a = <-answers:
		case <-inTime.Done():
			return late()
		}
	}
	switch {
	case a.err == nil, errors.Is(a.err, keep.ErrNotFound), errors.Is(a.err, keep.ErrConflict), errors.Is(a.err, keep.ErrExpired):
		c.Report(nil)
		return a.result, a.err
	case inTime.Err() != nil:
		return late()
	}
	return zero, c.unavailable(a.err)
}

// unavailable is the answer while the keeper fails.
func (c *Config) unavailable(why error) error {
	c.Report(why)
	c.Last.Fail(why)
	return apierrors.NewServiceUnavailable(fmt.Sprintf("what keeps %s does not answer: %v", c.Resource, why))
}

// wrong is the answer to what breaks the rules of keep.Keeper.
func (c *Config) wrong(format string, args ...any) error {
	return c.unavailable(fmt.Errorf(format, args...))
}

// scope is what a key of the store selects.
type scope struct {
	namespace string
	name      string // of one object; empty: all
	nothing   bool   // no object can have such a key
}

// scope returns what a key selects, with the key as upstream prepares it.
func (c *Config) scope(key string, recursive bool) (scope, string, error) {
	key, err := storage.PrepareKey(c.Prefix, key, recursive)
	if err != nil {
		return scope{}, "", err
	}
	rest := strings.TrimPrefix(key, c.Prefix)
	if recursive {
		rest = strings.TrimSuffix(rest, "/")
		return scope{namespace: rest, nothing: strings.Contains(rest, "/") || c.ClusterScoped && rest != ""}, key, nil
	}
	k := c.keyOf(rest)
	return scope{namespace: k.Namespace, name: k.Name, nothing: k.Name == ""}, key, nil
}

// has tells whether an object is selected.
func (s scope) has(k keep.Key) bool {
	return !s.nothing && (s.name == "" && s.namespace == "" || s.namespace == k.Namespace && (s.name == "" || s.name == k.Name))
}

// keyOf is the key of the keeper for what follows the prefix.
func (c *Config) keyOf(rest string) keep.Key {
	if c.ClusterScoped {
		return keep.Key{Name: rest}
	}
	namespace, name, _ := strings.Cut(rest, "/")
	return keep.Key{Namespace: namespace, Name: name}
}

// object makes what the keeper returned an object of the API.
func (s *Store[T, PT]) object(item keep.Item[T]) (PT, error) {
	o := PT(item.Object)
	switch {
	case o == nil:
		return nil, s.wrong("it returned no object")
	case o.GetName() == "" || (o.GetNamespace() == "") != s.ClusterScoped:
		return nil, s.wrong("it returned an object with the namespace %q and the name %q", o.GetNamespace(), o.GetName())
	case item.Version <= 0:
		return nil, s.wrong("it returned %s/%s with version %d", o.GetNamespace(), o.GetName(), item.Version)
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if s.Default != nil {
		s.Default(o)
	}
	return o, s.Versioner().UpdateObject(o, uint64(item.Version))
}

// given makes an object of the API one for the keeper.
func (s *Store[T, PT]) given(o PT) *T {
	given := o.DeepCopyObject().(PT)
	given.GetObjectKind().SetGroupVersionKind(s.Kind)
	return given
}

// set has an object that the caller provided be another one.
func (s *Store[T, PT]) set(out runtime.Object, o PT) error {
	to, ok := out.(PT)
	if !ok {
		return fmt.Errorf("%s are of type %T, not %T", s.Resource, o, out)
	}
	*to = *o
	return nil
}

// Versioner implements storage.Interface.
func (*Store[T, PT]) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// ReadinessCheck implements storage.Interface: whether the keeper answers is known when it is
// asked.
func (*Store[T, PT]) ReadinessCheck() error { return nil }

// EnableResourceSizeEstimation implements storage.Interface: nothing is encoded here.
func (*Store[T, PT]) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface: the past that the watch cache has is its own.
func (*Store[T, PT]) CompactRevision() int64 { return 0 }

// Stats implements storage.Interface.
func (s *Store[T, PT]) Stats(ctx context.Context) (storage.Stats, error) {
	page, err := s.list(ctx, keep.Range{})
	return storage.Stats{ObjectCount: int64(len(page.Items))}, err
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *Store[T, PT]) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	page, err := s.list(ctx, keep.Range{Limit: 1})
	return uint64(page.Version), err //nolint:gosec // list has seen that it is positive
}

// RequestWatchProgress implements storage.Interface.
func (s *Store[T, PT]) RequestWatchProgress(context.Context) error {
	s.asked.Add(1)
	s.changed.Announce()
	return nil
}
