package store

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/utils/clock"
)

const kibi = 1 << 10

// written is a store whose content a test writes as events. It begins empty, at
// resource version 1.
type written struct {
	storage.Interface
	events    chan watch.Event
	version   atomic.Int64
	compacted atomic.Int64
}

func (*written) Versioner() storage.Versioner                        { return storage.APIObjectVersioner{} }
func (*written) RequestWatchProgress(context.Context) error          { return nil }
func (*written) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
func (w *written) CompactRevision() int64                            { return w.compacted.Load() }
func (w *written) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return uint64(w.version.Load()), nil //nolint:gosec // it is never negative
}

func (w *written) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	w.events <- watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}}
	return watch.NewProxyWatcher(w.events), nil
}

// put writes a version of an object, of so many bytes.
func (w *written) put(name string, size int) {
	kind := watch.Modified
	if w.version.Add(1) < 4 { // the first versions of two objects
		kind = watch.Added
	}
	w.events <- watch.Event{Type: kind, Object: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: strconv.FormatInt(w.version.Load(), 10)},
		Data:       map[string]string{"a": strings.Repeat("a", size)},
	}}
}

// caching returns a cache in front of a new store.
func caching(t *testing.T, h *History) (*written, *cached) {
	t.Helper()
	w := &written{events: make(chan watch.Event, 1)} // room for the first bookmark
	w.version.Store(1)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &spec{
		config: &storagebackend.ConfigForResource{GroupResource: schema.GroupResource{Resource: "configmaps"}},
		cache: cacher.Config{
			Versioner: storage.APIObjectVersioner{}, GroupResource: schema.GroupResource{Resource: "configmaps"},
			EventsHistoryWindow: storagebackend.DefaultEventsHistoryWindow, ResourcePrefix: "/configmaps",
			KeyFunc: func(o runtime.Object) (string, error) { return "/configmaps/n/" + o.(*corev1.ConfigMap).Name, nil },
			NewFunc: func() runtime.Object { return &corev1.ConfigMap{} }, NewListFunc: func() runtime.Object { return &corev1.ConfigMapList{} },
			GetAttrsFunc: func(o runtime.Object) (labels.Set, fields.Set, error) {
				return nil, fields.Set{"metadata.name": o.(*corev1.ConfigMap).Name}, nil
			},
			Codec: serializer.NewCodecFactory(scheme).LegacyCodec(corev1.SchemeGroupVersion), Clock: clock.RealClock{},
		},
	}
	c, err := s.open(w, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	if err := c.cacher.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w, c
}

// watchFrom opens a watch from a version on.
func (c *cached) watchFrom(t *testing.T, version int64) watch.Interface {
	t.Helper()
	w, err := c.Watch(t.Context(), "/configmaps/", storage.ListOptions{
		ResourceVersion: strconv.FormatInt(version, 10), Predicate: storage.Everything, Recursive: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func versionOf(t *testing.T, e watch.Event) string {
	t.Helper()
	object, err := meta.Accessor(e.Object)
	if err != nil {
		t.Fatal(err)
	}
	return object.GetResourceVersion()
}

// has tells whether a watch from a version on is served, by its first event.
func (c *cached) has(t *testing.T, version int64) bool {
	t.Helper()
	e := <-c.watchFrom(t, version).ResultChan()
	if e.Type != watch.Error {
		if got, want := versionOf(t, e), strconv.FormatInt(version+1, 10); got != want {
			t.Errorf("a watch from %d begins at %s, want %s", version, got, want)
		}
		return true
	}
	if err := apierrors.FromObject(e.Object); apierrors.ReasonForError(err) != metav1.StatusReasonExpired ||
		e.Object.(*metav1.Status).Code != http.StatusGone {
		t.Errorf("a watch from %d: %v, want 410", version, err)
	}
	return false
}

// TestHistory: what a cache keeps of the past is bounded in bytes, and a watch that is
// open misses nothing.
func TestHistory(t *testing.T) {
	t.Parallel()
	h := NewHistory(512 * kibi)
	w, c := caching(t, h)
	open := c.watchFrom(t, 1)
	for i := range int64(300) {
		w.put(fmt.Sprint("o", i%2), 32*kibi)
		if got, want := versionOf(t, <-open.ResultChan()), strconv.FormatInt(i+2, 10); got != want {
			t.Fatalf("the watch is at %s, want %s", got, want)
		}
	}
	for version, want := range map[int64]bool{1: false, 2: false, 200: false, 295: true, 300: true} {
		if got := c.has(t, version); got != want {
			t.Errorf("a watch from %d of 301 is served: %v, want %v", version, got, want)
		}
	}
	if got := h.Bytes(); got > 512*kibi || got < 256*kibi {
		t.Errorf("%d bytes of history, want about 512 KiB", got)
	}
	list := &corev1.ConfigMapList{}
	if err := c.GetList(t.Context(), "/configmaps/", storage.ListOptions{
		ResourceVersion: "301", Predicate: storage.Everything, Recursive: true,
	}, list); err != nil || len(list.Items) != 2 {
		t.Errorf("%d objects are listed, %v; want 2", len(list.Items), err)
	}
	c.stop()
	if got := h.Bytes(); got != 0 {
		t.Errorf("%d bytes are counted of a cache that has ended", got)
	}
}

// TestHistoryIsShared: a resource that is written much takes nothing from others, and
// small events are kept by the hundred.
func TestHistoryIsShared(t *testing.T) {
	t.Parallel()
	h := NewHistory(1024 * kibi)
	small, quiet := caching(t, h)
	large, loud := caching(t, h)
	open := loud.watchFrom(t, 1)
	for i := range 200 {
		small.put(fmt.Sprint("o", i%2), 100)
		large.put(fmt.Sprint("o", i%2), 64*kibi)
		<-open.ResultChan()
	}
	if !quiet.has(t, 1) {
		t.Error("200 events of 100 bytes are not kept, of a limit of 1 MiB")
	}
	if loud.has(t, 100) {
		t.Error("6 MiB of events are kept, of a limit of 1 MiB")
	}
}

// TestHistoryOfAnotherVersion: a cache that has its history elsewhere goes on without a bound.
func TestHistoryOfAnotherVersion(t *testing.T) {
	t.Parallel()
	h := NewHistory(512 * kibi)
	p := h.add(&cacher.Cacher{})
	if p != nil {
		t.Fatal("what has no watch cache is counted")
	}
	h.remove(p)
	if got := h.Bytes(); got != 0 {
		t.Errorf("%d bytes are counted of nothing", got)
	}
}

// TestHistoryEnds: a cache keeps little of what the storage has forgotten, though
// nothing is written any more.
func TestHistoryEnds(t *testing.T) {
	t.Parallel()
	h := NewHistory(8 << 20)
	w, c := caching(t, h)
	open := c.watchFrom(t, 1)
	for i := range 100 {
		w.put(fmt.Sprint("o", i%2), 32*kibi)
		<-open.ResultChan()
	}
	p := &latePast{}
	for found := range h.pasts {
		p.Store(found)
	}
	if source := (expiring{w, p, false}); source.CompactRevision() != 0 || !c.has(t, 2) {
		t.Error("history is gone before the storage forgets it")
	}
	w.compacted.Store(90)
	if got := (expiring{w, p, false}).CompactRevision(); got != 90 {
		t.Errorf("the storage has compacted %d, want 90", got)
	}
	if got := h.Bytes(); got > 12*34*kibi || c.has(t, 2) || !c.has(t, 95) {
		t.Errorf("%d bytes of history after a compaction", got)
	}
}

func TestShareOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		sizes  []int64
		want   int64
	}{
		"one":           {"it has all", []int64{500}, 100},
		"equal":         {"each has the same", []int64{90, 90, 90, 90}, 25},
		"one is large":  {"the small ones lose nothing", []int64{10, 500, 10}, 80},
		"two are large": {"what the small one leaves is theirs", []int64{300, 20, 500}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := shareOf(tc.sizes, 100); got != tc.want {
				t.Errorf("%s: %d of 100, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
