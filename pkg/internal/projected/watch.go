package projected

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// Watch implements storage.Interface. A watch that begins with the present objects begins with a
// list below, so that it has what a list would have.
func (s *Store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	cache, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	w, err := s.watch(ctx, cache, key, opts)
	if err != nil {
		done()
		return nil, err
	}
	return source.Watch(w, done), nil
}

func (s *Store) watch(ctx context.Context, cache *store.Cache, key string, opts storage.ListOptions) (watch.Interface, error) {
	asked := opts.SendInitialEvents != nil
	anywhere := opts.ResourceVersion == "" || opts.ResourceVersion == "0"
	switch {
	case asked && *opts.SendInitialEvents, anywhere && !asked:
		return s.present(ctx, cache, key, opts)
	case anywhere:
		version, err := s.GetCurrentResourceVersion(ctx)
		if err != nil {
			return nil, err
		}
		return changes(ctx, cache, key, opts, fmt.Sprint(version))
	}
	return changes(ctx, cache, key, opts, opts.ResourceVersion)
}

// changes watches what changes from a version on.
func changes(ctx context.Context, cache *store.Cache, key string, opts storage.ListOptions, version string) (watch.Interface, error) {
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.SendInitialEvents = version, "", nil
	return cache.Watch(ctx, key, onlyShown(opts))
}

// onlyShown selects, of what the watch cache has, what is shown.
func onlyShown(opts storage.ListOptions) storage.ListOptions {
	shown := fields.OneTermEqualSelector(shownField, "true")
	if opts.Predicate.Field != nil {
		shown = fields.AndSelectors(opts.Predicate.Field, shown)
	}
	opts.Predicate.Field = shown
	return opts
}

// use returns the watch cache when it is filled, until done is called.
func (s *Store) use(ctx context.Context) (cache *store.Cache, done func(), err error) {
	if cache, done, err = s.caches.Use(); err != nil {
		return nil, nil, err
	}
	if cache.Wait(ctx) {
		return cache, done, nil
	}
	defer done()
	if _, err := s.GetCurrentResourceVersion(ctx); err != nil {
		return nil, nil, err // which says why
	}
	return nil, nil, apierrors.NewTooManyRequests(fmt.Sprintf("%s is being read", s.Below), 1)
}

// present is a watch that begins with the present objects.
func (s *Store) present(ctx context.Context, cache *store.Cache, key string, opts storage.ListOptions) (watch.Interface, error) {
	list := opts
	_, name := s.place(key)
	list.Recursive, list.Predicate.Limit = name == "", pageSize
	list.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	if list.ResourceVersion == "" || list.ResourceVersion == "0" {
		list.ResourceVersion, list.ResourceVersionMatch = "", ""
	}
	first := s.Cache.NewListFunc()
	if err := s.GetList(ctx, key, list, first); err != nil {
		return nil, err
	}
	return begin(ctx, func(ctx context.Context, send func(watch.Event) bool) error {
		version := ""
		for page := first; page != nil; {
			m, err := meta.ListAccessor(page)
			if err != nil {
				return err
			}
			version = m.GetResourceVersion()
			err = meta.EachListItem(page, func(obj runtime.Object) error {
				if !send(watch.Event{Type: watch.Added, Object: obj}) {
					return ctx.Err()
				}
				return nil
			})
			if err != nil {
				return err
			}
			list.ResourceVersion, list.ResourceVersionMatch, list.Predicate.Continue = "", "", m.GetContinue()
			if page = nil; list.Predicate.Continue != "" {
				page = s.Cache.NewListFunc()
				if err := s.GetList(ctx, key, list, page); err != nil {
					return err
				}
			}
		}
		if opts.SendInitialEvents != nil && opts.Predicate.AllowWatchBookmarks {
			mark := s.Cache.NewFunc().(Object)
			mark.SetResourceVersion(version)
			mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			send(watch.Event{Type: watch.Bookmark, Object: mark})
		}
		w, err := changes(ctx, cache, key, opts, version)
		if err != nil {
			return err
		}
		defer w.Stop()
		return forward(ctx, w, send)
	}), nil
}

// everything is what the watch cache reads: every object below, those that are not shown by name.
type everything struct{ *Store }

// IsWatchListSemanticsUnSupported has the cache begin with a list.
func (everything) IsWatchListSemanticsUnSupported() bool { return true }

// GetList implements storage.Interface.
func (s everything) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	return s.list(ctx, key, opts, list, func(Object, bool) (bool, error) { return true, nil })
}

// Watch implements storage.Interface. While the resource below fails, the cache tries again from
// where it was: that is what the error says. Others are those of the client below.
func (s everything) Watch(ctx context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.Reader.Watch(ctx, metav1.ListOptions{ResourceVersion: opts.ResourceVersion, AllowWatchBookmarks: true})
	switch {
	case err != nil && !s.isOfClient(err) && !apierrors.IsNotFound(err):
		return nil, apierrors.NewTooManyRequests(err.Error(), 0)
	case err != nil:
		return nil, err
	}
	return begin(ctx, func(ctx context.Context, send func(watch.Event) bool) error {
		defer s.open.Store(false)
		s.open.Store(true)
		defer w.Stop()
		defer func() {
			if s.last.Problem() == nil {
				s.last.Good(time.Now()) // until now it had all
			}
		}()
		s.last.Good(time.Now())
		return forward(ctx, w, func(e watch.Event) bool {
			e, err := s.event(e)
			if err != nil {
				e = failure(err)
			}
			if e.Type != watch.Error {
				s.last.Good(time.Now())
			}
			return send(e) && e.Type != watch.Error
		})
	}), nil
}

// event is an event below as one of the view.
func (s everything) event(e watch.Event) (watch.Event, error) {
	switch e.Type {
	case watch.Error:
		return e, nil
	case watch.Bookmark:
		mark := s.Cache.NewFunc().(Object)
		mark.SetResourceVersion(versionOf(e.Object))
		return watch.Event{Type: e.Type, Object: mark}, nil
	default:
		below, err := object(e.Object)
		if err != nil {
			return e, fmt.Errorf("watch of %s: %w", s.Below, err)
		}
		view, _, err := s.publish(below)
		return watch.Event{Type: e.Type, Object: view}, err
	}
}
