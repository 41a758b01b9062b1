package projected

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// Object is an API object with its metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Projection says how objects below become objects of the view, and back.
type Projection struct {
	// Below is the resource that is shown.
	Below Below
	// Reader reads it. Nil: the client does.
	Reader Reader
	// Publish fills in an object of the view, which has its metadata, and tells whether
	// clients see it. It must not change what is below.
	Publish func(below Object, view Object) (shown bool, err error)
	// Accept puts what a client wrote into the object below, which has its metadata. Nil:
	// nothing can be written.
	Accept func(view Object, below *unstructured.Unstructured) error
}

// Config makes a [Store].
type Config struct {
	Projection

	// Resource and Kind are those of the view.
	Resource schema.GroupResource
	Kind     string
	// ClusterScoped objects have no namespace in their keys.
	ClusterScoped bool
	// Report is called with the error of each read of the resource below, nil if it answered. May
	// be nil.
	Report func(error)
	// Stale is how old an answer may be that is given while the resource below fails.
	Stale time.Duration
	// Cache is of the watch cache, without its source. Its prefix starts the keys of the view.
	Cache cacher.Config
}

// Store implements storage.Interface.
type Store struct {
	Config

	// caches are the watch caches, one at a time while somebody watches.
	caches source.Shared[*store.Cache]
	last   *source.Last
	open   atomic.Bool // the watch below is
}

var _ storage.Interface = (*Store)(nil)

// New returns the store of a view. It runs nothing.
func New(c Config) *Store {
	if c.Reader == nil {
		c.Reader = c.Below
	}
	s := &Store{Config: c, last: &source.Last{Stale: c.Stale}}
	s.Reader = &reported{Reader: c.Reader, store: s}
	s.caches.Open = func() (*store.Cache, error) {
		s.last.Forget()
		return store.NewCache(s.Cache, everything{s})
	}
	s.caches.Close, s.caches.Rest = (*store.Cache).Stop, s.last.Rest()
	s.caches.Keep = (*store.Cache).Ready // one that is not would try to be again and again
	return s
}

// Close ends what runs.
func (s *Store) Close() { s.caches.End() }

// callTimeout bounds a call of the resource below that is no watch.
const callTimeout = 10 * time.Second

// bounded is the context of calls below for one request.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer in %v: %w", callTimeout, context.DeadlineExceeded))
}

// place is where an object of a key is: its namespace and name, either of which may be empty.
func (s *Store) place(key string) (namespace, name string) {
	rest, _ := strings.CutPrefix(strings.Trim(key, "/"), strings.Trim(s.Cache.ResourcePrefix, "/"))
	rest = strings.Trim(rest, "/")
	if s.ClusterScoped {
		return "", rest
	}
	namespace, name, _ = strings.Cut(rest, "/")
	return namespace, name
}

// publish makes the object of the view. One that is not shown has nothing but its identity.
func (s *Store) publish(below Object) (view Object, shown bool, err error) {
	view = s.Cache.NewFunc().(Object)
	s.showMetadata(below, view)
	if shown, err = s.Publish(below, view); err != nil {
		return nil, false, fmt.Errorf("publish %s %s: %w", s.Below, below.GetName(), err)
	}
	if !shown {
		view = s.Cache.NewFunc().(Object)
		view.SetAnnotations(map[string]string{hiddenAnnotation: ""})
	}
	identify(below, view)
	return view, shown, nil
}

// hiddenAnnotation is on what stands for an object that is not shown. No client sees it.
const hiddenAnnotation = "sailplane.dev/hidden"

// shownField is the field that tells whether an object is shown. Its name is none of a selector.
const shownField = "(shown)"

// Attributes has the field that tells whether an object is shown.
func Attributes(of storage.AttrFunc) storage.AttrFunc {
	return of.WithFieldMutation(func(obj runtime.Object, set fields.Set) error {
		m, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if isShown(m) {
			set[shownField] = "true"
		}
		return nil
	})
}

// isShown tells whether what the watch cache has is an object, and not what stands for one that is
// not shown.
func isShown(obj metav1.Object) bool {
	_, hidden := obj.GetAnnotations()[hiddenAnnotation]
	return !hidden
}

// toRead returns the watch cache if it may have to do for a client, and else nil, until done is
// called.
func (s *Store) toRead() (cache *store.Cache, done func(), err error) {
	if s.Stale == 0 {
		return nil, func() {}, nil
	}
	return s.caches.Use()
}

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	cache, done, err := s.toRead()
	if err != nil {
		return err
	}
	defer done()
	err = s.getInto(ctx, key, opts, out)
	if cache == nil || !cache.Instead(ctx, s.last, opts.ResourceVersion, "", err) {
		return err
	}
	if err := cache.LastGet(ctx, key, opts, out); err != nil {
		return err
	}
	if isShown(out.(Object)) {
		return nil
	}
	return missing(key, opts, out)
}

// missing is the answer to a get of what is not there, or not shown.
func missing(key string, opts storage.GetOptions, out runtime.Object) error {
	if opts.IgnoreNotFound {
		return runtime.SetZeroValue(out)
	}
	return storage.NewKeyNotFoundError(key, 0)
}

func (s *Store) getInto(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	view, err := s.get(ctx, key, opts.ResourceVersion)
	if err != nil && !isMissing(err) {
		return s.explain(ctx, err)
	}
	if view != nil {
		return assign(out, view)
	}
	return missing(key, opts, out)
}

// get returns an object of the view, nil for one that is not shown.
func (s *Store) get(ctx context.Context, key, version string) (Object, error) {
	namespace, name := s.place(key)
	if name == "" {
		return nil, nil
	}
	below, err := s.Reader.Get(ctx, namespace, name, metav1.GetOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	view, shown, err := s.publish(below)
	if err != nil || !shown {
		return nil, err
	}
	return view, nil
}

const (
	// pages is how many pages below are read at most for one of the view, when most objects
	// are not shown or not selected. The page is short then, and is followed by others.
	pages = 20
	// pageSize is how many objects are read at once where it does not follow from the limit.
	pageSize = 500
)

// keepFunc tells whether a list has an object of the view.
type keepFunc func(view Object, shown bool) (bool, error)

// GetList implements storage.Interface.
func (s *Store) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	cache, done, err := s.toRead()
	if err != nil {
		return err
	}
	defer done()
	_, name := s.place(key)
	listed := opts.Recursive == (name == "") // a name is no directory, and a directory no object
	err = s.list(ctx, key, opts, list, func(view Object, shown bool) (bool, error) {
		if !shown || !listed {
			return false, nil
		}
		return opts.Predicate.Matches(view)
	})
	if cache == nil || !cache.Instead(ctx, s.last, opts.ResourceVersion, opts.Predicate.Continue, err) {
		return err
	}
	return cache.LastList(ctx, key, onlyShown(opts), list)
}

// list lists the objects that are kept. When a page has room for more of them, many are read at
// once; that the next page begins after the last one that had room needs a token of its own.
func (s *Store) list(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object, keep keepFunc) error {
	options, err := s.listOptions(key, opts)
	if err != nil {
		return err
	}
	items, err := newItems(list)
	if err != nil {
		return err
	}
	namespace, _ := s.place(key)
	limit := int(opts.Predicate.Limit)
	options.Limit = pageSize
	if limit > 0 {
		options.Limit = opts.Predicate.Limit
	}
	var page *Page
	for n := 1; ; n++ {
		if page, err = s.read(ctx, namespace, options); err != nil {
			return err
		}
		if int64(len(page.Items)) > options.Limit { // a cache answers with all that it has, whatever the limit
			limit = 0
		}
		used := 0
		for ; used < len(page.Items) && (limit == 0 || items.len() < limit); used++ {
			if err := s.add(page.Items[used], items, keep); err != nil {
				return err
			}
		}
		if used < len(page.Items) {
			options.Limit = int64(used)
			if page, err = s.read(ctx, namespace, options); err != nil {
				return err
			}
		}
		if page.Continue == "" || limit > 0 && (items.len() == limit || n == pages) {
			break
		}
		options.Continue, options.ResourceVersion, options.ResourceVersionMatch = page.Continue, "", ""
		options.Limit = pageSize
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	m.SetResourceVersion(page.Version)
	m.SetContinue(page.Continue)
	return nil
}

// read reads one page below.
func (s *Store) read(ctx context.Context, namespace string, options metav1.ListOptions) (*Page, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	page, err := s.Reader.List(ctx, namespace, options)
	return page, s.explain(ctx, err)
}

// add adds an object below to a list of the view, if it is kept.
func (s *Store) add(below Object, to *items, keep keepFunc) error {
	view, shown, err := s.publish(below)
	if err != nil {
		return err
	}
	kept, err := keep(view, shown)
	if kept {
		to.add(view)
	}
	return err
}

// listOptions are those of the list below. What clients select by is of the view, but for the
// name and namespace.
func (s *Store) listOptions(key string, opts storage.ListOptions) (metav1.ListOptions, error) {
	options := metav1.ListOptions{
		ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch, Continue: opts.Predicate.Continue,
	}
	if options.Continue != "" {
		if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
			return options, fmt.Errorf("specifying resource version is not allowed when using continue")
		}
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	}
	if _, name := s.place(key); name != "" {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
	return options, nil
}

// Versioner implements storage.Interface.
func (*Store) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// Stats implements storage.Interface: the objects are counted where they are stored.
func (*Store) Stats(context.Context) (storage.Stats, error) { return storage.Stats{}, nil }

// ReadinessCheck implements storage.Interface: what is below has a check of its own, and another
// server does not keep this one from being ready.
func (*Store) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface. Nobody waits for the cache of a view: what has
// to be recent is read below.
func (*Store) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (s *Store) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	page, err := s.Reader.List(ctx, "", metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	return s.Versioner().ParseResourceVersion(page.Version)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (*Store) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface: the history of what is below is not known here.
func (*Store) CompactRevision() int64 { return 0 }
