package store

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// KeepFunc tells whether the caller may see an object of a list or watch.
type KeepFunc func(ctx context.Context, namespace, name string) (bool, error)

// Filter leaves objects out of the list or watch of one request. It travels in the
// request's context and does nothing before Keep is called.
type Filter struct {
	// Resource is the listed resource; stores of others ignore the filter.
	Resource schema.GroupResource

	mu      sync.Mutex
	keep    KeepFunc
	applied bool
}

type filterKey struct{}

// WithFilter returns a context whose lists and watches are filtered.
func WithFilter(ctx context.Context, f *Filter) context.Context {
	return context.WithValue(ctx, filterKey{}, f)
}

// FilterFrom returns the filter of a context, or nil.
func FilterFrom(ctx context.Context) *Filter {
	f, _ := ctx.Value(filterKey{}).(*Filter)
	return f
}

// Keep sets the function that selects the objects.
func (f *Filter) Keep(keep KeepFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep = keep
}

// Pending tells that objects must be left out and that no store has done so: an
// answer now would be unfiltered.
func (f *Filter) Pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keep != nil && !f.applied
}

// Filters tells whether objects are left out.
func (f *Filter) Filters() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keep != nil
}

// apply returns the function that selects the resource's objects; nil keeps
// everything.
func (f *Filter) apply(resource schema.GroupResource) KeepFunc {
	if f == nil || f.Resource != resource {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = f.keep != nil
	return f.keep
}

// filtering applies the filter of a request. It adds a condition to the predicate,
// which watch cache and storage both ask object by object: they still do limits,
// continuation, bookmarks and resource versions.
type filtering struct {
	storage.Interface
	resource schema.GroupResource
	newList  func() runtime.Object
	sizes    *sizes
}

// GetList lists what the filter keeps, when there is memory to write it.
func (s *filtering) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := s.list(ctx, key, opts, list); err != nil {
		return err
	}
	return s.sizes.account(ctx, list)
}

func (s *filtering) list(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	keep := FilterFrom(ctx).apply(s.resource)
	if keep == nil {
		return s.Interface.GetList(ctx, key, opts, list)
	}
	c := newCondition(ctx, keep, &opts)
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return withheld(err)
	}
	if err := s.end(ctx, key, opts, list); err != nil {
		return withheld(err)
	}
	return c.failure()
}

// end removes the continuation from a page that nothing follows: the caller must
// not learn of objects which the filter leaves out.
func (s *filtering) end(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	page, err := meta.ListAccessor(list)
	if err != nil || page.GetContinue() == "" {
		return err
	}
	opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	opts.Predicate.Limit, opts.Predicate.Continue = 1, page.GetContinue()
	rest := s.newList()
	if err := s.Interface.GetList(ctx, key, opts, rest); err != nil {
		return err
	}
	if meta.LenList(rest) == 0 {
		page.SetContinue("")
	}
	return nil
}

// Watched tells whether a store serves the watch of a request.
type Watched struct{ atomic.Bool }

type watchedKey struct{}

// WithWatched returns a context whose watches set w.
func WithWatched(ctx context.Context, w *Watched) context.Context {
	return context.WithValue(ctx, watchedKey{}, w)
}

// Watch watches what the filter keeps.
func (s *filtering) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.watch(ctx, key, opts)
	if of, ok := ctx.Value(watchedKey{}).(*Watched); ok && err == nil {
		of.Store(true)
	}
	return w, err
}

func (s *filtering) watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	keep := FilterFrom(ctx).apply(s.resource)
	if keep == nil {
		return s.Interface.Watch(ctx, key, opts)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := newCondition(ctx, keep, &opts)
	inner, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
		return nil, withheld(err)
	}
	w := &filteredWatch{inner: inner, condition: c, cancel: cancel, result: make(chan watch.Event)}
	go w.run(ctx)
	return w, nil
}

// withheld removes from a store's error what it tells of objects: the names of
// those that cannot be read.
func withheld(err error) error {
	known := apierrors.APIStatus(nil)
	switch {
	case apierrors.IsTooManyRequests(err): // the cache is not filled; the error says why
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return apierrors.NewTooManyRequests("the storage of the resource is being read", seconds)
	case errors.As(err, &known) && known.Status().Code < http.StatusInternalServerError,
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), storage.IsUnreachable(err), storage.IsRequestTimeout(err),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return apierrors.NewInternalError(errors.New("an object of the resource cannot be read"))
}

// condition is a field selector that also asks the filter.
type condition struct {
	fields.Selector
	*answers
}

// answers are the filter's answers in one list or watch.
type answers struct {
	ask    func(namespace, name string) (bool, error)
	failed chan struct{} // closed at the first error

	mu  sync.Mutex
	err error
}

// newCondition puts a condition into the predicate of one list or watch. It keeps
// their context to ask with: a selector gets none.
func newCondition(ctx context.Context, keep KeepFunc, opts *storage.ListOptions) condition {
	selector := opts.Predicate.Field
	if selector == nil {
		selector = fields.Everything()
	}
	c := condition{selector, &answers{
		ask:    func(namespace, name string) (bool, error) { return keep(ctx, namespace, name) },
		failed: make(chan struct{}),
	}}
	opts.Predicate.Field = c
	return c
}

// Matches implements fields.Selector. After an error nothing matches.
func (c condition) Matches(of fields.Fields) bool {
	return c.Selector.Matches(of) && c.keeps(of.Get("metadata.namespace"), of.Get("metadata.name"))
}

// Empty implements fields.Selector: it is never true, so that no store counts the
// rest of a list.
func (c condition) Empty() bool { return false }

// Transform implements fields.Selector.
func (c condition) Transform(f fields.TransformFunc) (fields.Selector, error) {
	inner, err := c.Selector.Transform(f)
	return condition{inner, c.answers}, err
}

// DeepCopySelector implements fields.Selector.
func (c condition) DeepCopySelector() fields.Selector {
	return condition{c.Selector.DeepCopySelector(), c.answers}
}

func (a *answers) keeps(namespace, name string) bool {
	if name == "" || a.failure() != nil {
		return false
	}
	kept, err := a.ask(namespace, name)
	if err != nil {
		a.fail(err)
		return false
	}
	return kept
}

func (a *answers) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
		close(a.failed)
	}
}

// failure is why objects to keep may be missing.
func (a *answers) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		return nil
	}
	return apierrors.NewInternalError(a.err)
}

// filteredWatch ends a watch at the first object without a decision, so that no
// client goes on behind a gap.
type filteredWatch struct {
	inner     watch.Interface
	condition condition
	cancel    context.CancelFunc
	result    chan watch.Event
}

// ResultChan implements watch.Interface.
func (w *filteredWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *filteredWatch) Stop() {
	w.cancel()
	w.inner.Stop()
}

// run passes events on until the watch ends.
func (w *filteredWatch) run(ctx context.Context) {
	defer close(w.result)
	defer w.Stop()
	for {
		event, ok := watch.Event{}, true
		select {
		case <-ctx.Done():
			return
		case <-w.condition.failed:
		case event, ok = <-w.inner.ResultChan():
		}
		err := w.condition.failure()
		if err != nil {
			event = watch.Event{Type: watch.Error, Object: status(err)}
		} else if !ok {
			return
		}
		select {
		case <-ctx.Done():
			return
		case w.result <- event:
		}
		if err != nil {
			return
		}
	}
}

func status(err error) *metav1.Status {
	if known := (*apierrors.StatusError)(nil); errors.As(err, &known) {
		return &known.ErrStatus
	}
	return &apierrors.NewInternalError(err).ErrStatus
}
