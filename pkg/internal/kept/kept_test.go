package kept_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/kept"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

func pod(name string) *example.Pod {
	return &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func create(t *testing.T, s storage.Interface, name string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	if err := s.Create(t.Context(), prefix+"ns/"+name, pod(name), out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

// next returns the next event of a watch.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(patience):
		t.Fatalf("no event in %v", patience)
		return watch.Event{}
	}
}

// TestConflict: no update is lost when many update one object, and what a cache had wrong.
func TestConflict(t *testing.T) {
	t.Parallel()
	p := newPods(false)
	stale := create(t, p, "a")
	const writers, updates = 8, 20
	add := func(o runtime.Object) (runtime.Object, error) {
		o.(*example.Pod).Generation++
		return o, nil
	}
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range updates {
				err := p.GuaranteedUpdate(t.Context(), prefix+"ns/a", &example.Pod{}, false, nil, storage.SimpleUpdate(add), stale.DeepCopy())
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := &example.Pod{}
	if err := p.Get(t.Context(), prefix+"ns/a", storage.GetOptions{}, got); err != nil || got.Generation != writers*updates {
		t.Errorf("after %d updates there are %d: %v", writers*updates, got.Generation, err)
	}
}

// TestExpired: a list cannot go on when something changed, but the client may have the rest as it
// is now; and no list is of the past.
func TestExpired(t *testing.T) {
	t.Parallel()
	p := newPods(false)
	first := create(t, p, "a")
	create(t, p, "b")
	create(t, p, "c")
	page := func(opts storage.ListOptions) (names string, list *example.PodList, err error) {
		list = &example.PodList{}
		err = p.GetList(t.Context(), prefix+"ns", opts, list)
		for _, pod := range list.Items {
			names += pod.Name
		}
		return names, list, err
	}
	everything := storage.Everything
	everything.Limit = 2
	opts := storage.ListOptions{Predicate: everything, Recursive: true}
	names, list, err := page(opts)
	if err != nil || names != "ab" || list.Continue == "" {
		t.Fatalf("the first page has %q and the token %q: %v", names, list.Continue, err)
	}
	create(t, p, "d")
	opts.Predicate.Continue = list.Continue
	_, _, err = page(opts)
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.Status().Continue == "" {
		t.Fatalf("the second page: %v, want 410 with a token", err)
	}
	opts.Predicate.Continue = status.Status().Continue
	if names, _, err := page(opts); err != nil || names != "cd" {
		t.Errorf("the rest as it is now is %q: %v", names, err)
	}
	for _, recursive := range []bool{true, false} {
		key := prefix + "ns"
		if !recursive {
			key += "/a"
		}
		err := p.GetList(t.Context(), key, storage.ListOptions{
			ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			Predicate: storage.Everything, Recursive: recursive,
		}, &example.PodList{})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("a list of the past, of everything %v: %v, want 410", recursive, err)
		}
	}
}

// TestFailing: while the keeper fails clients get 503 with the reason, and a watch goes on when
// it is back.
func TestFailing(t *testing.T) {
	t.Parallel()
	p := newPods(false)
	created := create(t, p, "a")
	w, err := p.Watch(t.Context(), prefix, storage.ListOptions{ResourceVersion: created.ResourceVersion, Predicate: storage.Everything, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p.keeper.Fail(errors.New("out of ink"))
	for what, err := range map[string]error{
		"get":    p.Get(t.Context(), prefix+"ns/a", storage.GetOptions{}, &example.Pod{}),
		"list":   p.GetList(t.Context(), prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &example.PodList{}),
		"create": p.Create(t.Context(), prefix+"ns/b", pod("b"), nil, 0),
		"delete": p.Delete(t.Context(), prefix+"ns/a", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),
	} {
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "out of ink") {
			t.Errorf("%s: %v, want 503 that says why", what, err)
		}
	}
	p.keeper.Fail(nil)
	create(t, p, "b")
	if e := next(t, w); e.Object.(metav1.Object).GetName() != "b" {
		t.Errorf("the event after the failure is %v", e)
	}
}

// stuck is a keeper that never answers, nor looks at its context.
type stuck struct {
	*keeptest.Memory[example.Pod, *example.Pod]
	release chan struct{}
}

func (s stuck) List(context.Context, keep.Range) (keep.Page[example.Pod], error) {
	<-s.release
	return keep.Page[example.Pod]{}, errors.New("too late")
}

func (s stuck) Get(context.Context, keep.Key) (keep.Item[example.Pod], error) {
	<-s.release
	panic("it never answers")
}

// TestStuck: nobody waits for long for a keeper that does not answer, nor does its panic end the
// process.
func TestStuck(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := kept.New[example.Pod](stuck{keeptest.NewMemory[example.Pod](), release}, kept.Config{Prefix: prefix, Timeout: 10 * time.Millisecond})
	get := func() error { return s.Get(t.Context(), prefix+"ns/a", storage.GetOptions{}, &example.Pod{}) }
	if err := get(); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("%v, want 503 that says that there was no answer", err)
	}
	if _, err := s.Stats(t.Context()); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "60ms") {
		t.Errorf("a list of everything: %v, want 503 after six times as long", err)
	}
	close(release)
	if err := get(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%v, want 503", err)
	}
}

// prompt is a keeper whose gets need no deadline, of which one panics.
type prompt struct {
	*keeptest.Memory[example.Pod, *example.Pod]
}

func (prompt) GetsAtOnce() bool { return true }

func (p prompt) Get(ctx context.Context, key keep.Key) (keep.Item[example.Pod], error) {
	if key.Name == "panic" {
		panic("it has nothing")
	}
	return p.Memory.Get(ctx, key)
}

// TestPrompt: a get that needs no deadline is answered as any other one, and its panic ends nothing.
func TestPrompt(t *testing.T) {
	t.Parallel()
	m := keeptest.NewMemory[example.Pod]()
	if _, err := m.Put(t.Context(), pod("a"), 0); err != nil {
		t.Fatal(err)
	}
	s := kept.New[example.Pod](prompt{Memory: m}, kept.Config{Prefix: prefix})
	get := func(name string) error {
		return s.Get(t.Context(), prefix+"ns/"+name, storage.GetOptions{}, &example.Pod{})
	}
	if err := get("a"); err != nil {
		t.Error(err)
	}
	if err := get("b"); !storage.IsNotFound(err) {
		t.Errorf("%v, want not found", err)
	}
	if err := get("panic"); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "it has nothing") {
		t.Errorf("%v, want 503 with the reason", err)
	}
}

// liar is a keeper that breaks a rule.
type liar struct {
	*keeptest.Memory[example.Pod, *example.Pod]
}

func (liar) Put(context.Context, *example.Pod, int64) (int64, error) { return 0, keep.ErrConflict }

// TestRules: a keeper that breaks the rules is found out, and keeps nobody busy.
func TestRules(t *testing.T) {
	t.Parallel()
	m := keeptest.NewMemory[example.Pod]()
	if _, err := m.Put(t.Context(), pod("a"), 0); err != nil {
		t.Fatal(err)
	}
	s := kept.New[example.Pod](liar{m}, kept.Config{Resource: schema.GroupResource{Resource: "pods"}, Prefix: prefix})
	err := s.GuaranteedUpdate(t.Context(), prefix+"ns/a", &example.Pod{}, false, nil,
		storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
			o.(*example.Pod).Generation++
			return o, nil
		}), nil)
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "refuses a write of that version") {
		t.Errorf("an update that conflicts with nothing: %v", err)
	}
}

// TestBatches: a watch gets more changes than a batch has, in order, each once.
func TestBatches(t *testing.T) {
	t.Parallel()
	p := newPods(false)
	w, err := p.Watch(t.Context(), prefix, storage.ListOptions{ResourceVersion: "1", Predicate: storage.Everything, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const many = 250
	for i := range many {
		if _, err := p.keeper.Put(t.Context(), pod(fmt.Sprintf("p%03d", i)), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		if got, want := next(t, w).Object.(metav1.Object).GetName(), fmt.Sprintf("p%03d", i); got != want {
			t.Fatalf("event %d is of %s, want %s", i, got, want)
		}
	}
}

// TestTimes: what a client reads and sends back is no change, though its times are shorter.
func TestTimes(t *testing.T) {
	t.Parallel()
	p := newPods(false)
	in := pod("a")
	in.CreationTimestamp = metav1.NewTime(time.Unix(1700000000, 5))
	in.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Time: new(metav1.NewTime(time.Unix(1700000000, 7)))}}
	out, updated := &example.Pod{}, &example.Pod{}
	if err := p.Create(t.Context(), prefix+"ns/a", in, out, 0); err != nil {
		t.Fatal(err)
	}
	err := p.GuaranteedUpdate(t.Context(), prefix+"ns/a", updated, false, nil, storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		pod := o.(*example.Pod)
		pod.CreationTimestamp = metav1.NewTime(time.Unix(1700000000, 0))
		pod.ManagedFields[0].Time = new(metav1.NewTime(time.Unix(1700000000, 0)))
		return pod, nil
	}), nil)
	if err != nil || updated.ResourceVersion != out.ResourceVersion {
		t.Errorf("version %s became %s: %v", out.ResourceVersion, updated.ResourceVersion, err)
	}
}

// TestOthersWrite: a list has what others wrote before it, such as another server on the same
// table, though it comes from the watch cache.
func TestOthersWrite(t *testing.T) {
	t.Parallel()
	p := newCached(t, false)
	for i := range 20 {
		if _, err := p.keeper.Put(t.Context(), pod(fmt.Sprintf("p%02d", i)), 0); err != nil {
			t.Fatal(err)
		}
		list := &example.PodList{}
		err := p.GetList(t.Context(), prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, list)
		if err != nil || len(list.Items) != i+1 {
			t.Fatalf("after %d writes %d are listed: %v", i+1, len(list.Items), err)
		}
	}
}
