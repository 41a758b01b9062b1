package apis_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// orchard is a source of apples: a map that a test writes.
type orchard struct {
	mu    sync.Mutex
	trees map[string]fruit.Apple
	err   error
	calls atomic.Int64
}

func (o *orchard) set(name, variety string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trees == nil {
		o.trees = map[string]fruit.Apple{}
	}
	o.trees[name] = fruit.Apple{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name, Labels: map[string]string{"variety": variety}},
		Spec:       fruit.AppleSpec{Variety: variety},
	}
}

func (o *orchard) fell(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.trees, name)
}

func (o *orchard) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *orchard) read(context.Context, apis.Query) ([]fruit.Apple, error) {
	o.calls.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []fruit.Apple
	for _, a := range o.trees {
		all = append(all, a)
	}
	return all, o.err
}

func virtual(o *orchard, options ...apis.Option) *apis.Definition {
	return apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(20*time.Millisecond, o.read), options...)
}

// TestVirtual: what a function returns is read as what is stored.
func TestVirtual(t *testing.T) {
	t.Parallel()
	o := &orchard{}
	for i := range 5 {
		o.set(fmt.Sprintf("a%d", i), "boskoop")
	}
	o.set("b", "elstar")
	s := serve(t, virtual(o))
	const path = "v1/namespaces/garden/apples"
	s.call(200, http.MethodGet, path+"/b", "").has("an object", "spec.variety", `"elstar"`, "kind", `"Apple"`)
	s.call(404, http.MethodGet, path+"/c", "")
	s.call(405, http.MethodDelete, path+"/b", "")
	if got := s.call(200, http.MethodGet, path+"?labelSelector=variety%3Delstar", ""); strings.Count(got.body, `"name":`) != 1 {
		t.Errorf("by a selector: %s", got.body)
	}
	page := s.call(200, http.MethodGet, path+"?limit=4", "")
	rest := s.call(200, http.MethodGet, path+"?limit=4&continue="+strings.Trim(page.at("metadata.continue"), `"`), "")
	if got := strings.Count(page.body, `"spec":`) + strings.Count(rest.body, `"spec":`); got != 6 || rest.at("metadata.continue") != "" {
		t.Errorf("pages have %d objects: %s, %s", got, page.body, rest.body)
	}
	if a, b := page.at("metadata.resourceVersion"), rest.at("metadata.resourceVersion"); a != b {
		t.Errorf("pages have versions %s and %s, though nothing changed", a, b)
	}
	uid := s.call(200, http.MethodGet, path+"/b", "").at("metadata.uid")
	version := strings.Trim(page.at("metadata.resourceVersion"), `"`)
	events := s.watch(path + "?watch=1&resourceVersion=" + version)
	o.set("c", "cox")
	o.set("b", "gala")
	o.fell("a0")
	got := map[string]bool{}
	for range 3 {
		got[next(t, events)] = true
	}
	if !got["ADDED c"] || !got["MODIFIED b"] || !got["DELETED a0"] {
		t.Errorf("events: %v", got)
	}
	if now := s.call(200, http.MethodGet, path+"/b", "").at("metadata.uid"); now != uid {
		t.Errorf("its UID was %s, and is %s", uid, now)
	}
	again := s.watch(path + "?watch=1&resourceVersion=" + version)
	for range 3 {
		delete(got, next(t, again))
	}
	if len(got) > 0 {
		t.Errorf("a watch from before lacks %v", got)
	}
	for _, version := range []string{"1", "8" + version[1:]} {
		s.call(410, http.MethodGet, path+"?resourceVersion="+version, "")
		s.call(410, http.MethodGet, path+"?watch=1&resourceVersion="+version, "")
	}
}

// TestVirtualFails: while the source fails clients learn that, and watches go on.
func TestVirtualFails(t *testing.T) {
	t.Parallel()
	o := &orchard{}
	o.set("a", "boskoop")
	s := serve(t, virtual(o))
	const path = "v1/namespaces/garden/apples"
	version := strings.Trim(s.call(200, http.MethodGet, path, "").at("metadata.resourceVersion"), `"`)
	events := s.watch(path + "?watch=1&resourceVersion=" + version)
	o.fail(errors.New("frost"))
	if got := s.call(503, http.MethodGet, path, ""); !strings.Contains(got.body, "frost") {
		t.Errorf("the answer does not say why: %s", got.body)
	}
	o.set("b", "elstar")
	o.fail(nil)
	if got := next(t, events); got != "ADDED b" {
		t.Errorf("the event after the failure is %s", got)
	}
	s.call(200, http.MethodGet, path+"/b", "")
}

// TestVirtualStale: a declaration can have clients get what was there, with a warning.
func TestVirtualStale(t *testing.T) {
	t.Parallel()
	o := &orchard{}
	o.set("a", "boskoop")
	s := serve(t, apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(time.Minute, o.read), apis.Stale(time.Hour)))
	const path = "v1/namespaces/garden/apples"
	o.fail(errors.New("frost"))
	s.call(503, http.MethodGet, path, "")
	o.fail(nil)
	s.call(200, http.MethodGet, "v1/apples", "")
	o.fail(errors.New("frost"))
	if got := s.call(200, http.MethodGet, path, ""); len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "frost") {
		t.Errorf("warnings: %q", got.warnings)
	}
}

// TestUnwatchedCostsNothing: the function is called for those who ask, and for all watchers
// together.
func TestUnwatchedCostsNothing(t *testing.T) {
	t.Parallel()
	o := &orchard{}
	o.set("a", "boskoop")
	s := serve(t, apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(time.Hour, o.read)))
	if got := o.calls.Load(); got != 0 {
		t.Fatalf("%d calls before anybody asked", got)
	}
	const path = "v1/namespaces/garden/apples"
	s.call(200, http.MethodGet, path, "")
	if got := o.calls.Load(); got != 1 {
		t.Errorf("%d calls for one list", got)
	}
}

// TestWatchersShareCalls: a call is for all watchers.
func TestWatchersShareCalls(t *testing.T) {
	t.Parallel()
	o := &orchard{}
	o.set("a", "boskoop")
	s := serve(t, apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(100*time.Millisecond, o.read)))
	const path = "v1/namespaces/garden/apples?watch=1&resourceVersion="
	version := strings.Trim(s.call(200, http.MethodGet, "v1/namespaces/garden/apples", "").at("metadata.resourceVersion"), `"`)
	const watchers = 1000
	var all []<-chan string
	for range watchers {
		all = append(all, s.watch(path+version))
	}
	begun := time.Now()
	before := o.calls.Load() // each that began looked whether the version is known
	for i := range 5 {
		o.set(fmt.Sprint("b", i), "elstar")
		for _, events := range all {
			next(t, events)
		}
	}
	// A tick may have waited for a call that took long, and another one is due at the end.
	calls, most := o.calls.Load()-before, int64(time.Since(begun)/(100*time.Millisecond))+2
	if calls < 5 || calls > most {
		t.Errorf("%d calls for %d watchers and 5 changes, want 5 to %d", calls, watchers, most)
	}
}

// planted is a source that is followed: what tests send goes to who follows.
type planted struct {
	changes chan apis.Change[fruit.Apple]
	first   chan []fruit.Apple // of each call
	ends    chan error
	running atomic.Int64
}

func (p *planted) follow(ctx context.Context, to chan<- apis.Change[fruit.Apple]) error {
	p.running.Add(1)
	defer p.running.Add(-1)
	select {
	case first := <-p.first:
		for _, a := range first {
			to <- apis.Change[fruit.Apple]{Object: a}
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	to <- apis.Change[fruit.Apple]{Synced: true}
	for {
		select {
		case c := <-p.changes:
			to <- c
		case err := <-p.ends:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// apple is a change to one.
func apple(name, variety string) apis.Change[fruit.Apple] {
	return apis.Change[fruit.Apple]{Object: fruit.Apple{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name}, Spec: fruit.AppleSpec{Variety: variety},
	}}
}

// TestFollow: a source that says what changes is asked by nobody, and one that failed has left out
// what is gone.
func TestFollow(t *testing.T) {
	t.Parallel()
	p := &planted{changes: make(chan apis.Change[fruit.Apple]), first: make(chan []fruit.Apple, 1), ends: make(chan error)}
	s := serve(t, apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Follow(p.follow)))
	if n := p.running.Load(); n != 0 {
		t.Fatalf("%d run before anybody asked", n)
	}
	const path = "v1/namespaces/garden/apples"
	p.first <- []fruit.Apple{apple("a", "boskoop").Object, apple("b", "elstar").Object}
	list := s.call(200, http.MethodGet, path, "")
	if got := strings.Count(list.body, `"spec":`); got != 2 {
		t.Fatalf("the first list waits for all objects: %s", list.body)
	}
	version := strings.Trim(list.at("metadata.resourceVersion"), `"`)
	events := s.watch(path + "?watch=1&resourceVersion=" + version)
	p.changes <- apple("c", "cox")
	p.changes <- apple("c", "gala")
	gone := apple("c", "")
	gone.Removed = true
	p.changes <- gone
	for _, want := range []string{"ADDED c", "MODIFIED c", "DELETED c"} {
		if got := next(t, events); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	s.call(404, http.MethodGet, path+"/c", "")

	p.ends <- errors.New("frost")
	for got := ""; !strings.Contains(got, "frost"); {
		if answer := s.ask(http.MethodGet, path, ""); answer.code == 503 {
			got = answer.body
		}
	}
	p.first <- []fruit.Apple{apple("b", "elstar").Object, apple("d", "cox").Object}
	got := map[string]bool{next(t, events): true, next(t, events): true}
	if !got["DELETED a"] || !got["ADDED d"] {
		t.Errorf("events of the time when it failed: %v", got)
	}
	s.call(200, http.MethodGet, path+"/d", "")
}

// TestFollowNonsense: what cannot be served is told, and why.
func TestFollowNonsense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		follow     func(context.Context, chan<- apis.Change[fruit.Apple]) error
	}{
		{"ends", "the source ended", func(context.Context, chan<- apis.Change[fruit.Apple]) error { return nil }},
		{"panics", "panic: worm", func(context.Context, chan<- apis.Change[fruit.Apple]) error { panic("worm") }},
		{"no name", "it has no name", func(ctx context.Context, to chan<- apis.Change[fruit.Apple]) error {
			to <- apple("", "cox")
			<-ctx.Done()
			return nil
		}},
		{"never synced", "no answer in 50ms", func(ctx context.Context, to chan<- apis.Change[fruit.Apple]) error {
			to <- apple("a", "cox")
			<-ctx.Done()
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Follow(c.follow).Timeout(50*time.Millisecond)))
			for end := time.Now().Add(30 * time.Second); ; {
				got := s.call(503, http.MethodGet, "v1/apples", "")
				if strings.Contains(got.body, c.want) {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("the answer is %s, want %q in it", got.body, c.want)
				}
			}
		})
	}
}

// TestVirtualParts: sub-resources and versions are as those of what is stored, but for writes.
func TestVirtualParts(t *testing.T) {
	t.Parallel()
	o := &orchard{}
	o.set("a", "boskoop")
	s := serve(t, virtual(o, apis.Status(), apis.Scale(
		func(a *fruit.Apple) (*int32, int32, string) { return a.Spec.Replicas, a.Status.Replicas, "" },
		func(a *fruit.Apple, n int32) { a.Spec.Replicas = &n },
	)))
	const path = "v1/namespaces/garden/apples/a"
	s.call(200, http.MethodGet, path+"/status", "").has("an object", "spec.variety", `"boskoop"`)
	s.call(200, http.MethodGet, path+"/scale", "").has("a scale", "kind", `"Scale"`)
	s.call(405, http.MethodPut, path+"/status", "{}")
	s.call(405, http.MethodPut, path+"/scale", "{}")
	s.call(405, http.MethodPut, path, "{}")
}

// TestVirtualMistakes: a source that cannot work is told at Build.
func TestVirtualMistakes(t *testing.T) {
	t.Parallel()
	read := (&orchard{}).read
	for _, c := range []struct {
		name, want string
		d          *apis.Definition
	}{
		{"no function", "has no function", apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll[fruit.Apple](time.Second, nil))},
		{"no pause", "want more than 0", apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(0, read))},
		{"no time", "want more than 0", apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(time.Second, read).Timeout(0))},
		{"a write", "nothing can be written", apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(time.Second, read),
			apis.Verbs("get", "list", "watch", "delete"))},
	} {
		if err := c.d.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
