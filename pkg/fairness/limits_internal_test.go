package fairness

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

// TestNumberBeforeTheCount: while objects are being counted there is no room.
func TestNumberBeforeTheCount(t *testing.T) {
	t.Parallel()
	n := &number{limit: 10}
	kind, resource := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithResource("configmaps")
	a := admission.NewAttributesRecord(&corev1.ConfigMap{}, nil, kind, "default", "a", resource, "", admission.Create, nil, false, nil)
	if err := n.Validate(t.Context(), a, nil); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want a 429", err)
	}
}

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
