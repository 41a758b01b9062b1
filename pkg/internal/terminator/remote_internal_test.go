package terminator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWaits: until when a group version is waited for that failed at second 100, by a
// server that waits for 30 s.
func TestWaits(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	gv := schema.GroupVersion{Group: "far.example.com", Version: "v1"}
	condition := func(kind corev1.NamespaceConditionType, status corev1.ConditionStatus, second int) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(at(second))}
	}
	cases := map[string]struct {
		reason     string
		before     map[schema.GroupVersion]wait
		conditions []corev1.NamespaceCondition
		want       int
	}{
		"First": {reason: "it has all the time", want: 130},
		"Known": {reason: "it failed before", before: map[schema.GroupVersion]wait{gv: {until: at(117)}}, want: 117},
		"Other": {
			reason: "what the conditions tell of is another", before: map[schema.GroupVersion]wait{},
			conditions: []corev1.NamespaceCondition{condition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, 80)}, want: 130,
		},
		"Restart": {
			reason: "the server before this one waited since the first of them",
			conditions: []corev1.NamespaceCondition{
				condition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, 85),
				condition(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionTrue, 80),
			}, want: 110,
		},
		"LongRestart": {
			reason:     "this server looks for itself",
			conditions: []corev1.NamespaceCondition{condition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, 10)}, want: 105,
		},
		"Over": {
			reason:     "it answered meanwhile",
			conditions: []corev1.NamespaceCondition{condition(corev1.NamespaceDeletionContentFailure, corev1.ConditionFalse, 80)}, want: 130,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := waits{limit: 30 * time.Second, all: c.before}
			w.record(&corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: c.conditions}}, []schema.GroupVersion{gv}, at(100))
			if got := w.all[gv].until; !got.Equal(at(c.want)) {
				t.Errorf("%s: waited for until second %d, want %d", c.reason, got.Unix(), c.want)
			}
			if _, known := c.before[gv]; w.all[gv].over(at(1000)) != known {
				t.Errorf("%s: over at last: %v, want %v", c.reason, !known, known)
			}
			w.record(&corev1.Namespace{}, nil, at(101))
			w.record(&corev1.Namespace{}, []schema.GroupVersion{gv}, at(200))
			if got := w.all[gv].until; !got.Equal(at(230)) {
				t.Errorf("%s: when it fails again after an answer it is waited for until second %d, want 230", c.reason, got.Unix())
			}
		})
	}
}
