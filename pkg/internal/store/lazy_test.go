package store

import (
	"context"
	"errors"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// TestLazy: what needs no watch cache makes none.
func TestLazy(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		use    func(ctx context.Context, s storage.Interface) error
		opened bool
	}{
		"create": {"the storage does it", func(ctx context.Context, s storage.Interface) error {
			return s.Create(ctx, "/x", nil, nil, 0)
		}, false},
		"get": {"the storage answers", func(ctx context.Context, s storage.Interface) error {
			return s.Get(ctx, "/x", storage.GetOptions{}, nil)
		}, false},
		"get of any version": {"what the storage says is any version, too", func(ctx context.Context, s storage.Interface) error {
			return s.Get(ctx, "/x", storage.GetOptions{ResourceVersion: "0"}, nil)
		}, false},
		"update": {"the object is read first", func(ctx context.Context, s storage.Interface) error {
			return s.GuaranteedUpdate(ctx, "/x", nil, false, nil, nil, nil)
		}, false},
		"delete": {"the object is read first", func(ctx context.Context, s storage.Interface) error {
			return s.Delete(ctx, "/x", nil, nil, nil, nil, storage.DeleteOptions{})
		}, false},
		"readiness": {"it waits for nothing", func(_ context.Context, s storage.Interface) error {
			return s.ReadinessCheck()
		}, false},
		"list": {"who lists lists again", func(ctx context.Context, s storage.Interface) error {
			return s.GetList(ctx, "/x", storage.ListOptions{}, nil)
		}, true},
		"watch": {"one watch of the storage is for all", func(ctx context.Context, s storage.Interface) error {
			_, err := s.Watch(ctx, "/x", storage.ListOptions{})
			return err
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			l := newLazy(agreeing{}, schema.GroupResource{}, func() uint64 { return 1 }, func() (*cached, error) {
				opened++
				return nil, errMade
			})
			for range 2 { // what could not be made is tried again
				want := error(nil)
				if tc.opened {
					want = errMade
				}
				if err := tc.use(t.Context(), l); !errors.Is(err, want) {
					t.Errorf("%s: error %v, want %v", tc.reason, err, want)
				}
			}
			if want := map[bool]int{true: 2}[tc.opened]; opened != want {
				t.Errorf("%s: asked for a cache %d times, want %d", tc.reason, opened, want)
			}
			l.stop()
			if err := tc.use(t.Context(), l); tc.opened && !errors.Is(err, source.ErrClosed) {
				t.Errorf("%s: after the end: %v, want %v", tc.reason, err, source.ErrClosed)
			}
		})
	}
}

// TestWatchCatchesUp: a watch from before the cache began gets what it missed from the storage, and the rest
// from the cache.
func TestWatchCatchesUp(t *testing.T) {
	t.Parallel()
	const floor, history, last = 10, 5, 12
	event := func(kind watch.EventType, version int) watch.Event {
		return watch.Event{Type: kind, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}}
	}
	for name, tc := range map[string]struct {
		reason    string
		from      int
		bookmarks bool
		stored    []watch.Event // what the watch of the storage has
		want      []int         // versions
	}{
		"events":                {"the last is where the cache began", 7, false, []watch.Event{event(watch.Added, 8), event(watch.Modified, 10)}, []int{8, 10, 11, 12}},
		"events and more":       {"the cache has what follows", 7, false, []watch.Event{event(watch.Deleted, 11), event(watch.Added, 12)}, []int{11, 12}},
		"no event":              {"the storage says how far it is", 7, false, []watch.Event{event(watch.Bookmark, 10)}, []int{11, 12}},
		"no event, bookmarks":   {"the client wants to know, too", 7, true, []watch.Event{event(watch.Bookmark, 10)}, []int{10, 11, 12}},
		"an early bookmark":     {"the watch is still behind", 7, true, []watch.Event{event(watch.Bookmark, 9), event(watch.Added, 10)}, []int{9, 10, 11, 12}},
		"from the first":        {"the storage has all since then", history, false, []watch.Event{event(watch.Added, 10)}, []int{10, 11, 12}},
		"before the history":    {"the storage had something else", history - 1, false, nil, []int{11, 12}},
		"from where both begin": {"the cache has it", floor, false, nil, []int{11, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, c := caching(t, NewHistory(32<<20))
			c.floor.Store(floor)
			for w.version.Store(floor); w.version.Load() < last; {
				w.put("o", 1)
			}
			s := &before{watched: watch.NewFakeWithChanSize(len(tc.stored), false)}
			for _, e := range tc.stored {
				s.watched.Action(e.Type, e.Object)
			}
			l := newLazy(s, schema.GroupResource{}, func() uint64 { return history }, func() (*cached, error) { return c, nil })
			opts := storage.ListOptions{ResourceVersion: strconv.Itoa(tc.from), Predicate: storage.Everything, Recursive: true}
			opts.Predicate.AllowWatchBookmarks = tc.bookmarks
			got, err := l.Watch(t.Context(), "/configmaps/", opts)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Stop()
			for i, want := range tc.want {
				if version := versionOf(t, <-got.ResultChan()); version != strconv.Itoa(want) {
					t.Errorf("%s: event %d is of version %s, want %d", tc.reason, i, version, want)
				}
			}
			if asked := len(tc.stored) > 0; s.watched.IsStopped() != asked || s.asked != asked {
				t.Errorf("%s: the storage was watched: %v, and is no longer: %v", tc.reason, s.asked, s.watched.IsStopped())
			}
		})
	}
}

// before is a store with a watch of what was before the cache.
type before struct {
	agreeing
	watched *watch.FakeWatcher
	asked   bool
}

func (*before) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (b *before) Watch(_ context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	b.asked = true
	if !opts.ProgressNotify {
		return nil, errors.New("nobody would know when a watch without events has caught up")
	}
	return b.watched, nil
}

const errMade = constError("no cache")

type constError string

func (e constError) Error() string { return string(e) }

// agreeing is a store that does whatever it is asked, which is nothing.
type agreeing struct{ storage.Interface }

func (agreeing) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return nil
}

func (agreeing) Get(context.Context, string, storage.GetOptions, runtime.Object) error { return nil }

func (agreeing) GuaranteedUpdate(
	context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc, runtime.Object,
) error {
	return nil
}

func (agreeing) Delete(
	context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object, storage.DeleteOptions,
) error {
	return nil
}

func (agreeing) ReadinessCheck() error { return nil }
