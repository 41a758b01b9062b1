package fairness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/klog/v2"
)

// TestNumberBeforeTheCount: while objects are being counted there is no room.
func TestNumberBeforeTheCount(t *testing.T) {
	t.Parallel()
	n := &number{now: Limits{ObjectsPerResource: 10}.always, judge: newJudge()}
	kind, resource := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithResource("configmaps")
	a := admission.NewAttributesRecord(&corev1.ConfigMap{}, nil, kind, "default", "a", resource, "", admission.Create, nil, false, nil)
	ctx := context.WithValue(t.Context(), callerKey{}, &caller{name: "ann"})
	if err := n.Validate(ctx, a, nil); !apierrors.IsTooManyRequests(err) {
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

// TestMemoryIsBounded: users and namespaces without end take no memory without end.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	r, j := newRates(), newJudge()
	take := func(n int) bool {
		c := &caller{name: fmt.Sprintf("user-%d", n), namespace: fmt.Sprintf("home-%d", n)}
		short, _ := r.take(1, r.sharesOf(c, fmt.Sprintf("namespace-%d", n), rating{0.001, 1}, 1))
		j.tell(report{c.name, "Burst"}, time.Now())
		return short == nil
	}
	for i := range users + 100 {
		take(i)
	}
	for name, n := range map[string]int{
		"users": r.users.Len(), "accounts": r.accounts.Len(), "namespaces": r.namespaces.Len(), "reports": j.told.Len(),
	} {
		if n != users {
			t.Errorf("%d %s are kept: want %d", n, name, users)
		}
	}
	if take(users + 99) {
		t.Error("the rate of the last user is forgotten")
	}
	w := newWatches(Limits{WatchesPerUser: 1}.always, j)
	ann := &caller{name: "ann", namespace: "home"}
	if w.begin(t.Context(), ann) != nil || w.begin(t.Context(), ann) == nil {
		t.Error("want one watch of two")
	}
	if w.end(ann); len(w.open)+len(w.together) != 0 {
		t.Error("a user without watches is remembered")
	}
}

// TestTake: what one bucket has too little of is taken from none.
func TestTake(t *testing.T) {
	t.Parallel()
	r := newRates()
	ann, one := &caller{name: "ann"}, rating{0.001, 10}
	take := func(namespace string, n int64) string {
		short, wait := r.take(n, r.sharesOf(ann, namespace, one, 2))
		if short == nil {
			return "taken"
		}
		return fmt.Sprintf("%s, %ds", short.subject(), int(wait.Round(time.Second).Seconds()))
	}
	// Others have used up namespace b.
	if short, _ := r.take(20, r.sharesOf(nil, "b", one, 2)); short != nil {
		t.Fatal("a namespace has twice what a user has")
	}
	for _, s := range []struct {
		reason, namespace string
		n                 int64
		want              string
	}{
		{"there is enough", "a", 4, "taken"},
		{"the namespace has too little", "b", 6, `writers into namespace "b" together, 3000s`},
		{"which took nothing from the user", "a", 6, "taken"},
		{"the user has too little", "a", 1, `user "ann", 1000s`},
	} {
		if got := take(s.namespace, s.n); got != s.want {
			t.Errorf("%s: got %s, want %s", s.reason, got, s.want)
		}
	}
	if short, _ := r.take(1000, r.sharesOf(&caller{name: "bob"}, "", one, 2)); short != nil {
		t.Error("more than a burst is never taken")
	}
}

// TestTell: a caller is reported once a minute for each limit.
func TestTell(t *testing.T) {
	t.Parallel()
	j, now := newJudge(), time.Now()
	for _, s := range []struct {
		reason string
		report report
		after  time.Duration
		want   bool
	}{
		{"the first", report{"ann", "Burst"}, 0, true},
		{"so soon", report{"ann", "Burst"}, 59 * time.Second, false},
		{"another limit", report{"ann", "WatchesPerUser"}, 59 * time.Second, true},
		{"another caller", report{"bob", "Burst"}, 59 * time.Second, true},
		{"after a minute", report{"ann", "Burst"}, time.Minute, true},
	} {
		if got := j.tell(s.report, now.Add(s.after)); got != s.want {
			t.Errorf("%s: told is %t", s.reason, got)
		}
	}
}
