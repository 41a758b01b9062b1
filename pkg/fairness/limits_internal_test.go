package fairness

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/klog/v2"
)

// TestNumberBeforeTheCount: while objects are being counted there is no room.
func TestNumberBeforeTheCount(t *testing.T) {
	t.Parallel()
	n := &number{now: Limits{ObjectsPerResource: 10}.always}
	kind, resource := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithResource("configmaps")
	a := admission.NewAttributesRecord(&corev1.ConfigMap{}, nil, kind, "default", "a", resource, "", admission.Create, nil, false, nil)
	if err := n.Validate(t.Context(), a, nil); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want a 429", err)
	}
}

// TestMistakesAreLoggedOnce: not for every request.
func TestMistakesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	logged := 0
	ctx := klog.NewContext(t.Context(), funcr.New(func(string, string) { logged++ }, funcr.Options{}))
	var next Limits
	l := &lastGood{ask: func() Limits { return next }}
	l.good.Store(&Limits{})
	good, other := Limits{WatchesPerUser: 1}, Limits{WatchesPerUser: 2}
	for _, s := range []struct {
		reason     string
		next, want Limits
		logged     int
	}{
		{"good", good, good, 0},
		{"bad", Limits{WatchesPerUser: -1}, good, 1},
		{"as bad as before", Limits{WatchesPerUser: -1}, good, 1},
		{"bad in another way", Limits{ObjectBytes: -1}, good, 2},
		{"what was good is good", good, good, 2},
		{"bad again", Limits{ObjectBytes: -1}, good, 3},
		{"another good one", other, other, 3},
	} {
		next = s.next
		if got := l.now(ctx); got != s.want || logged != s.logged {
			t.Errorf("%s: got %+v and %d lines of log, want %+v and %d", s.reason, got, logged, s.want, s.logged)
		}
	}
}

func TestUsersAreBounded(t *testing.T) {
	t.Parallel()
	r := newRates(nil)
	for i := range users + 100 {
		r.of(fmt.Sprintf("user-%d", i), 0.001, 1).Allow()
	}
	if n := r.buckets.Len(); n != users {
		t.Errorf("the rates of %d users are kept: want %d", n, users)
	}
	if last := fmt.Sprintf("user-%d", users+99); r.of(last, 0.001, 1).Allow() {
		t.Error("the rate of the last user is forgotten")
	}
	w := newWatches(nil)
	if !w.begin("ann", 1) || w.begin("ann", 1) {
		t.Error("want one watch of two")
	}
	if w.end("ann"); len(w.open) != 0 {
		t.Error("a user without watches is remembered")
	}
}
