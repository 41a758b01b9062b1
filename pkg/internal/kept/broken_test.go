package kept_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/kept"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

// reports is the newest condition of a keeper.
type reports struct {
	mu  sync.Mutex
	now error
}

func (r *reports) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = err
}

func (r *reports) says(t *testing.T, when, want string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := fmt.Sprint(r.now); !strings.Contains(got, want) || want == "" && r.now != nil {
		t.Errorf("%s the condition is %q, want %q", when, got, want)
	}
}

// TestBroken: what is no object is left out of lists and watches, which the condition says as long
// as there is some; a get says why, and it can be deleted.
func TestBroken(t *testing.T) {
	t.Parallel()
	m, r := keeptest.NewMemory[example.Pod](), &reports{}
	s := kept.New(m, kept.Config{Resource: schema.GroupResource{Resource: "pods"}, Prefix: prefix, Report: r.report})
	all := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	list := func(opts storage.ListOptions) string {
		t.Helper()
		found, names := &example.PodList{}, ""
		if err := s.GetList(t.Context(), prefix, opts, found); err != nil {
			t.Fatal(err)
		}
		for _, pod := range found.Items {
			names += pod.Name
		}
		return names
	}
	for _, name := range []string{"a", "b", "c"} {
		create(t, s, name)
	}
	w, err := s.Watch(t.Context(), prefix, storage.ListOptions{ResourceVersion: "4", Recursive: true, Predicate: storage.Everything})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	r.says(t, "at first", "")
	b := keep.Key{Namespace: "ns", Name: "b"}
	m.Break(b, errors.New("rotten"))
	if e := next(t, w); e.Type != watch.Deleted || e.Object.(metav1.Object).GetName() != "b" {
		t.Errorf("watchers are told %v", e)
	}
	r.says(t, "for watchers", "1 left out, which cannot be read: rotten")
	if got := list(all); got != "ac" {
		t.Errorf("the list is %q", got)
	}
	r.says(t, "after a list", "rotten")
	everything := storage.Everything
	everything.Limit = 1
	if got := list(storage.ListOptions{Recursive: true, Predicate: everything}); got != "a" {
		t.Errorf("the first page is %q", got)
	}
	if err := s.Get(t.Context(), prefix+"ns/a", storage.GetOptions{}, &example.Pod{}); err != nil {
		t.Error(err)
	}
	r.says(t, "after reads of others", "rotten")

	err = s.Get(t.Context(), prefix+"ns/b", storage.GetOptions{}, &example.Pod{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "rotten") || !strings.Contains(err.Error(), "ns/b") {
		t.Errorf("a get: %v", err)
	}
	err = s.GuaranteedUpdate(t.Context(), prefix+"ns/b", &example.Pod{}, true, nil,
		storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) { return o, nil }), nil)
	if !apierrors.IsInternalError(err) {
		t.Errorf("an update: %v", err)
	}
	if err := s.Create(t.Context(), prefix+"ns/b", pod("b"), nil, 0); !storage.IsExist(err) {
		t.Errorf("a create: %v", err)
	}
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "delete"})
	found := &example.Pod{}
	if err := s.Get(ctx, prefix+"ns/b", storage.GetOptions{}, found); err != nil || found.Name != "b" {
		t.Errorf("the get of a delete: %v, %v", found, err)
	}
	remove := func(name string) error {
		valid := func(context.Context, runtime.Object) error { return nil }
		return s.Delete(ctx, prefix+"ns/"+name, &example.Pod{}, nil, valid, nil, storage.DeleteOptions{})
	}
	if err := remove("b"); err != nil {
		t.Fatal(err)
	}
	next(t, w)
	r.says(t, "after the deletion", "")

	// Others correct one while nobody looks.
	m.Break(b, errors.New("rotten"))
	list(all)
	r.says(t, "after a list", "rotten")
	item, err := m.Get(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Put(t.Context(), pod("b"), item.Version); err != nil {
		t.Fatal(err)
	}
	if got := list(all); got != "abc" {
		t.Errorf("after the correction the list is %q", got)
	}
	r.says(t, "after the correction", "")
}

// warner is a keeper that warns.
type warner struct {
	*keeptest.Memory[example.Pod, *example.Pod]
	warning error
}

func (w *warner) Warning() error { return w.warning }

// TestWarning: the condition says what a keeper warns of, although its calls are answered.
func TestWarning(t *testing.T) {
	t.Parallel()
	m, r := &warner{Memory: keeptest.NewMemory[example.Pod]()}, &reports{}
	s := kept.New(m, kept.Config{Resource: schema.GroupResource{Resource: "pods"}, Prefix: prefix, Report: r.report})
	list := func() {
		t.Helper()
		all := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
		if err := s.GetList(t.Context(), prefix, all, &example.PodList{}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, s, "a")
	r.says(t, "at first", "")
	m.warning = errors.New("stale")
	list()
	r.says(t, "after a warning", "stale")
	m.Break(keep.Key{Namespace: "ns", Name: "a"}, errors.New("rotten"))
	list()
	r.says(t, "with one left out", "1 left out, which cannot be read: rotten; stale")
	m.warning = nil
	list()
	r.says(t, "without the warning", "rotten")
}
