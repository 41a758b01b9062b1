package fairness_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// changing are limits that a test changes.
type changing struct {
	now atomic.Pointer[fairness.Limits]
}

func (c *changing) set(l fairness.Limits) { c.now.Store(&l) }

// part is what follows them, from none on.
func (c *changing) part() controlplane.Part {
	c.set(fairness.Limits{})
	return fairness.FollowLimits(func() fairness.Limits { return *c.now.Load() })
}

// version is a request that takes no time.
func version(t *testing.T, client rest.Interface) error {
	t.Helper()
	return client.Get().MaxRetries(0).AbsPath("/version").Do(t.Context()).Error()
}

func open(t *testing.T, client rest.Interface) (watch.Interface, error) {
	t.Helper()
	w, err := client.Get().MaxRetries(0).AbsPath("/api/v1/configmaps").
		VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(t.Context())
	if err == nil {
		t.Cleanup(w.Stop)
	}
	return w, err
}

func TestRateChanges(t *testing.T) {
	t.Parallel()
	var c changing
	s := serve(t, c.part())
	ann := s.as(t, "ann")
	let := func(reason string, n int) {
		t.Helper()
		for range n {
			if err := version(t, ann); err != nil {
				t.Fatalf("%s: %v", reason, err)
			}
		}
	}
	let("no limit", 5)
	c.set(fairness.Limits{RequestsPerSecond: 0.001, Burst: 2})
	let("a limit, whose burst begins then", 2)
	const slow = "limit RequestsPerSecond is 0.001 with Burst 2: "
	refused(t, version(t, ann), http.StatusTooManyRequests, slow)
	c.set(fairness.Limits{})
	let("no limit again", 5)
	c.set(fairness.Limits{RequestsPerSecond: 0.001, Burst: 2})
	refused(t, version(t, ann), http.StatusTooManyRequests, slow)
	c.set(fairness.Limits{RequestsPerSecond: 1000, Burst: 50})
	until(t, "a user who is known has the new rate", func() bool { return version(t, ann) == nil })
	// A rate that nobody reaches fills the bucket with a burst that was not there before.
	c.set(fairness.Limits{RequestsPerSecond: 1e9, Burst: 6})
	let("a rate that nobody reaches", 2)
	c.set(fairness.Limits{RequestsPerSecond: 0.001, Burst: 6})
	let("what is in the bucket", 5)
	c.set(fairness.Limits{RequestsPerSecond: 0.001, Burst: 1})
	let("a burst that is smaller", 1)
	refused(t, version(t, ann), http.StatusTooManyRequests, "limit RequestsPerSecond is 0.001 with Burst 1: ")
}

func TestWatchLimitChanges(t *testing.T) {
	t.Parallel()
	var c changing
	s := serve(t, c.part())
	ann := s.as(t, "ann")
	first, err := open(t, ann)
	if err != nil {
		t.Fatal(err)
	}
	let := func(reason string) {
		t.Helper()
		if _, err := open(t, ann); err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
	}
	let("no limit")
	c.set(fairness.Limits{WatchesPerUser: 2})
	_, err = open(t, ann)
	refused(t, err, http.StatusTooManyRequests, "limit WatchesPerUser is 2: ")
	c.set(fairness.Limits{WatchesPerUser: 3})
	let("a higher limit")
	c.set(fairness.Limits{WatchesPerUser: 1})
	_, err = open(t, ann)
	refused(t, err, http.StatusTooManyRequests, "limit WatchesPerUser is 1: ")
	if err := create(t.Context(), ann, "a", 1); err != nil {
		t.Fatal(err)
	}
	for e := range first.ResultChan() { // those that are open stay
		if e.Type == watch.Added {
			break
		}
	}
	first.Stop()
	c.set(fairness.Limits{WatchesPerUser: 3})
	until(t, "one that ended makes room", func() bool { _, err := open(t, ann); return err == nil })
	_, err = open(t, ann)
	refused(t, err, http.StatusTooManyRequests, "limit WatchesPerUser is 3: ")
	c.set(fairness.Limits{})
	let("no limit again")
}

func TestRequestLimitChanges(t *testing.T) {
	t.Parallel()
	var c changing
	g := &gate{entered: make(chan string, 10), open: make(chan struct{})}
	s := serve(t, c.part(), g)
	ann := s.as(t, "ann")
	running := []<-chan error{slow(t, ann), slow(t, ann)}
	for range running {
		<-g.entered
	}
	c.set(fairness.Limits{RequestsAtOncePerUser: 2})
	refused(t, version(t, ann), http.StatusTooManyRequests, "limit RequestsAtOncePerUser is 2: ")
	c.set(fairness.Limits{RequestsAtOncePerUser: 3})
	if err := version(t, ann); err != nil {
		t.Errorf("a higher limit: %v", err)
	}
	c.set(fairness.Limits{RequestsAtOncePerUser: 1})
	refused(t, version(t, ann), http.StatusTooManyRequests, "limit RequestsAtOncePerUser is 1: ")
	close(g.open)
	for _, answer := range running {
		if err := <-answer; !apierrors.IsNotFound(err) {
			t.Errorf("one that ran already got %v: want 404 from the API", err)
		}
	}
	until(t, "requests that ended make room", func() bool { return version(t, ann) == nil })
}

func TestObjectLimitsChange(t *testing.T) {
	t.Parallel()
	var c changing
	s := serve(t, c.part())
	ann := s.as(t, "ann")
	created := 0
	let := func(reason string, bytes int) {
		t.Helper()
		created++
		if err := create(t.Context(), ann, fmt.Sprintf("c%d", created), bytes); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	let("no limit", 1000)
	c.set(fairness.Limits{ObjectBytes: 1000})
	refused(t, create(t.Context(), ann, "more", 1000), http.StatusRequestEntityTooLarge, "limit ObjectBytes is 1000: ")
	c.set(fairness.Limits{ObjectBytes: 2000})
	let("a higher limit", 1000)
	c.set(fairness.Limits{ObjectsPerResource: created})
	refused(t, create(t.Context(), ann, "more", 1), http.StatusTooManyRequests,
		fmt.Sprintf(`limit ObjectsPerResource is %d: namespace "default" already has that many configmaps`, created))
	c.set(fairness.Limits{ObjectsPerResource: created + 1})
	let("a higher number", 1)
	refused(t, create(t.Context(), ann, "more", 1), http.StatusTooManyRequests, "limit ObjectsPerResource is ")
	c.set(fairness.Limits{})
	let("no limit again", 1000)
}

// TestBadLimits: what has no meaning changes nothing, and no server starts with it.
func TestBadLimits(t *testing.T) {
	t.Parallel()
	var c changing
	s := serve(t, c.part())
	ann := s.as(t, "ann")
	c.set(fairness.Limits{ObjectBytes: 1000})
	refused(t, create(t.Context(), ann, "large", 1000), http.StatusRequestEntityTooLarge, "limit ObjectBytes is 1000: ")
	for reason, l := range map[string]fairness.Limits{
		"negative":   {ObjectBytes: -1},
		"not a rate": {ObjectBytes: 5000, RequestsPerSecond: math.NaN()},
		"endless":    {ObjectBytes: 5000, RequestsPerSecond: math.Inf(1)},
		"only burst": {ObjectBytes: 5000, Burst: 1},
	} {
		c.set(l)
		err := create(t.Context(), ann, "large", 1000)
		if err == nil {
			t.Fatalf("%s: the limit is gone", reason)
		}
		refused(t, err, http.StatusRequestEntityTooLarge, "limit ObjectBytes is 1000: ")
	}
	c.set(fairness.Limits{ObjectBytes: 5000})
	if err := create(t.Context(), ann, "large", 1000); err != nil {
		t.Errorf("good ones again: %v", err)
	}

	for want, part := range map[string]controlplane.Part{
		`part "fairness.FollowLimits": field WatchesPerUser is -1: want more than 0, or 0 for no limit`: fairness.FollowLimits(
			func() fairness.Limits { return fairness.Limits{WatchesPerUser: -1} }),
		`part "fairness.FollowLimits": the function is nil`: fairness.FollowLimits(nil),
		`guard "bytes": part "fairness.Limits" already has one with that name`: controlplane.Parts{
			fairness.Limits{ObjectBytes: 1}, fairness.FollowLimits(func() fairness.Limits { return fairness.Limits{} }),
		},
	} {
		if _, err := builder(part).Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v: want %s", err, want)
		}
	}
}

// TestLimitsChangeUnderLoad: after a time with many requests and many changes, limits
// hold as if there had been none.
func TestLimitsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	var c changing
	s := serve(t, c.part())
	all := []fairness.Limits{
		{},
		{RequestsAtOncePerUser: 1, WatchesPerUser: 1, RequestsPerSecond: 1e6},
		{RequestsAtOncePerUser: 3, ObjectsPerResource: 10, ObjectBytes: 1},
		{RequestsAtOncePerUser: -1},
	}
	var clients sync.WaitGroup
	for i := range 4 {
		ann := s.as(t, "ann")
		clients.Go(func() {
			for j := range 100 {
				c.set(all[(i+j)%len(all)])
				if err := version(t, ann); err != nil && !apierrors.IsTooManyRequests(err) {
					t.Errorf("got %v: want an answer or 429", err)
				}
				if w, err := open(t, ann); err == nil {
					w.Stop()
				} else if !apierrors.IsTooManyRequests(err) {
					t.Errorf("a watch got %v: want it or 429", err)
				}
			}
		})
	}
	clients.Wait()
	c.set(fairness.Limits{RequestsAtOncePerUser: 1, WatchesPerUser: 1})
	ann := s.as(t, "ann")
	until(t, "no request counts any more", func() bool { return version(t, ann) == nil })
	until(t, "no watch counts any more", func() bool { _, err := open(t, ann); return err == nil })
	_, err := open(t, ann)
	refused(t, err, http.StatusTooManyRequests, "limit WatchesPerUser is 1: ")
}
