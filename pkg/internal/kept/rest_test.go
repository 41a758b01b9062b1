package kept_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sailplane-dev/sailplane/pkg/internal/kept"
	"github.com/sailplane-dev/sailplane/pkg/internal/source"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

// countedKeeper counts its calls.
type countedKeeper struct {
	*keeptest.Memory[example.Pod, *example.Pod]
	calls atomic.Int64
}

func (c *countedKeeper) Get(ctx context.Context, key keep.Key) (keep.Item[example.Pod], error) {
	c.calls.Add(1)
	return c.Memory.Get(ctx, key)
}

func (c *countedKeeper) List(ctx context.Context, r keep.Range) (keep.Page[example.Pod], error) {
	c.calls.Add(1)
	return c.Memory.List(ctx, r)
}

func (c *countedKeeper) Changes(ctx context.Context, since int64) (keep.Batch[example.Pod], error) {
	c.calls.Add(1)
	return c.Memory.Changes(ctx, since)
}

// restingPods is a store with its watch cache, over a keeper that counts.
func restingPods(t *testing.T, stale time.Duration) (storage.Interface, *countedKeeper) {
	t.Helper()
	last := &source.Last{Stale: stale}
	k := &countedKeeper{Memory: keeptest.NewMemory[example.Pod]()}
	resource := schema.GroupResource{Resource: "pods"}
	s, destroy := store.Cached(cacher.Config{
		Storage:   kept.New(k, kept.Config{Resource: resource, Prefix: prefix, Last: last}),
		Versioner: storage.APIObjectVersioner{}, GroupResource: resource, EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix: prefix, KeyFunc: func(o runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, o) },
		GetAttrsFunc: attributes, NewFunc: func() runtime.Object { return &example.Pod{} },
		NewListFunc: func() runtime.Object { return &example.PodList{} }, Codec: podCodec(t), Clock: soonClock{},
	}, nil, last)
	t.Cleanup(destroy)
	return s, k
}

// listed lists all Pods.
func listed(t *testing.T, s storage.Interface) *example.PodList {
	t.Helper()
	list := &example.PodList{}
	if err := s.GetList(t.Context(), prefix, storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil {
		t.Fatal(err)
	}
	return list
}

func watched(t *testing.T, s storage.Interface, version string) (watch.Interface, error) {
	t.Helper()
	return s.Watch(t.Context(), prefix, storage.ListOptions{Recursive: true, ResourceVersion: version, Predicate: storage.Everything})
}

// TestRest: the keeper is not asked any more a minute after the last list or watch, and is for the
// next one, which sees what changed meanwhile, or is told that it cannot.
func TestRest(t *testing.T) {
	t.Parallel()
	if err := upstream.AllowProgressRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, k := restingPods(t, 0)
		rests := func(when string) {
			t.Helper()
			time.Sleep(source.Rest + time.Second)
			synctest.Wait()
			before := k.calls.Load()
			time.Sleep(time.Hour)
			if asked := k.calls.Load() - before; asked != 0 {
				t.Errorf("%s: the keeper is asked %d times in an hour", when, asked)
			}
		}
		put := func(name string) {
			t.Helper()
			if _, err := k.Put(t.Context(), pod(name), 0); err != nil {
				t.Fatal(err)
			}
		}
		rests("before the first list")
		put("a")
		version := listed(t, s).ResourceVersion
		w, err := watched(t, s, version)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		put("b")
		if e := next(t, w); e.Type != watch.Added || e.Object.(metav1.Object).GetName() != "b" {
			t.Errorf("a watch after an hour got %v", e)
		}
		w.Stop()
		rests("after a watch")

		put("c")
		if err := s.Get(t.Context(), prefix+"ns/c", storage.GetOptions{ResourceVersion: "0"}, &example.Pod{}); err != nil {
			t.Errorf("a get while it rests: %v", err)
		}
		list := listed(t, s)
		if len(list.Items) != 3 {
			t.Errorf("after a rest %d objects are listed", len(list.Items))
		}
		// What changed since the version, the next cache cannot say.
		old, err := watched(t, s, version)
		if err == nil {
			e := next(t, old)
			old.Stop()
			err = apierrors.FromObject(e.Object)
		}
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from before the rest: %v, want 410", err)
		}
		w, err = watched(t, s, list.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		put("d")
		if e := next(t, w); e.Object.(metav1.Object).GetName() != "d" {
			t.Errorf("a watch after a rest got %v", e)
		}
		w.Stop()
		rests("after the second watch")
	})
}

// warned collects warnings.
type warned struct{ texts []string }

func (w *warned) AddWarning(_, text string) { w.texts = append(w.texts, text) }

// TestStale: while the keeper fails, what the cache has is an answer for the time that is declared,
// at any version alike, and with a warning. Writes fail, and so does what is of one version.
func TestStale(t *testing.T) {
	t.Parallel()
	if err := upstream.AllowProgressRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		const stale = 10 * time.Minute
		s, k := restingPods(t, stale)
		if _, err := k.Put(t.Context(), pod("a"), 0); err != nil {
			t.Fatal(err)
		}
		version := listed(t, s).ResourceVersion
		time.Sleep(stale - 2*time.Minute) // nobody asks
		k.Fail(errors.New("out of ink"))
		reads := func(version string) (says []string, errs []error) {
			w := &warned{}
			ctx := warning.WithWarningRecorder(t.Context(), w)
			o, list := &example.Pod{}, &example.PodList{}
			all := storage.ListOptions{Recursive: true, ResourceVersion: version, Predicate: storage.Everything}
			errs = []error{
				s.Get(ctx, prefix+"ns/a", storage.GetOptions{ResourceVersion: version}, o), s.GetList(ctx, prefix, all, list),
			}
			if errors.Join(errs...) == nil && (o.Name != "a" || len(list.Items) != 1) {
				t.Errorf("at version %q: got %q and %d objects", version, o.Name, len(list.Items))
			}
			return w.texts, errs
		}
		time.Sleep(time.Minute)
		for _, at := range []string{"", "0"} {
			says, errs := reads(at)
			if err := errors.Join(errs...); err != nil {
				t.Errorf("at version %q: %v", at, err)
			}
			if len(says) != 2 || !strings.HasPrefix(says[0], "this is 1m") || !strings.Contains(says[1], "out of ink") {
				t.Errorf("at version %q: the warnings are %q", at, says)
			}
		}
		exact := storage.ListOptions{Recursive: true, ResourceVersion: version, Predicate: storage.Everything}
		exact.ResourceVersionMatch = metav1.ResourceVersionMatchExact
		if err := s.GetList(t.Context(), prefix, exact, &example.PodList{}); err != nil {
			t.Errorf("a list of a version that the cache knows: %v", err)
		}
		if err := s.Create(t.Context(), prefix+"ns/b", pod("b"), nil, 0); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a create: %v, want 503", err)
		}
		patch := request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: "patch"})
		if err := s.Get(patch, prefix+"ns/a", storage.GetOptions{}, &example.Pod{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("the get of a patch: %v, want 503", err)
		}
		time.Sleep(stale)
		for _, at := range []string{"", "0"} {
			says, errs := reads(at)
			for _, err := range errs {
				if !apierrors.IsServiceUnavailable(err) || len(says) > 0 {
					t.Errorf("after the time, at version %q: %v, %q, want 503", at, err, says)
				}
			}
		}
		k.Fail(nil)
		for _, at := range []string{"", "0"} {
			if says, errs := reads(at); errors.Join(errs...) != nil || len(says) > 0 {
				t.Errorf("after the failure, at version %q: %v, %q", at, errs, says)
			}
		}
	})
}
