package fairness

import (
	"fmt"
	"testing"
)

func TestUsersAreBounded(t *testing.T) {
	t.Parallel()
	r := newRates(0.001, 1)
	for i := range users + 100 {
		r.of(fmt.Sprintf("user-%d", i)).Allow()
	}
	if n := r.buckets.Len(); n != users {
		t.Errorf("the rates of %d users are kept: want %d", n, users)
	}
	if last := fmt.Sprintf("user-%d", users+99); r.of(last).Allow() {
		t.Error("the rate of the last user is forgotten")
	}
	w := newWatches(1)
	if !w.begin("ann") || w.begin("ann") {
		t.Error("want one watch of two")
	}
	if w.end("ann"); len(w.open) != 0 {
		t.Error("a user without watches is remembered")
	}
}
