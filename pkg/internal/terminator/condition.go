package terminator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions are those that Kubernetes sets on a Terminating namespace, with
// its reasons and messages.
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/controller/namespace/deletion/status_condition_utils.go
func (r *remains) conditions() []corev1.NamespaceCondition {
	var all []corev1.NamespaceCondition
	add := func(kind corev1.NamespaceConditionType, raised bool, bad, good [2]string) {
		c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: good[0], Message: good[1]}
		if raised {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, bad[0], bad[1]
		}
		all = append(all, c)
	}
	add(corev1.NamespaceDeletionDiscoveryFailure, len(r.undiscovered) > 0,
		[2]string{
			"DiscoveryFailed",
			fmt.Sprintf("Discovery failed for some groups, %d failing: %s", len(r.undiscovered), inOrder(r.undiscoveries())),
		},
		[2]string{"ResourcesDiscovered", "All resources successfully discovered"})
	add(corev1.NamespaceDeletionGVParsingFailure, false,
		[2]string{}, [2]string{"ParsedGroupVersions", "All legacy kube types successfully parsed"})
	add(corev1.NamespaceDeletionContentFailure, len(r.failed) > 0,
		[2]string{
			"ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(r.failed), inOrder(r.failures())),
		},
		[2]string{"ContentDeleted", "All content successfully deleted, may be waiting on finalization"})
	add(corev1.NamespaceContentRemaining, len(r.objects) > 0,
		[2]string{"SomeResourcesRemain", "Some resources are remaining: " + counted(r.objects, "%s has %d resource instances")},
		[2]string{"ContentRemoved", "All content successfully removed"})
	add(corev1.NamespaceFinalizersRemaining, len(r.finalizers) > 0,
		[2]string{
			"SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: " + counted(r.finalizers, "%s in %d resource instances"),
		},
		[2]string{"ContentHasNoFinalizers", "All content-preserving finalizers finished"})
	return all
}

// inOrder joins errors, which come in any order, in a fixed order, so that a
// condition changes only when they do.
func inOrder(errs []error) string {
	texts := map[string]bool{}
	for _, err := range errs {
		texts[err.Error()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(texts)), "; ")
}

// setConditions puts conditions into a status, and tells whether that changed
// anything. A condition that says the same keeps its time.
func setConditions(status *corev1.NamespaceStatus, conditions []corev1.NamespaceCondition, now metav1.Time) bool {
	changed := false
	for _, c := range conditions {
		i := slices.IndexFunc(status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == c.Type })
		if i < 0 {
			c.LastTransitionTime = now
			status.Conditions = append(status.Conditions, c)
			changed = true
			continue
		}
		old := &status.Conditions[i]
		if old.Status != c.Status {
			old.LastTransitionTime = now
		}
		if old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
			old.Status, old.Reason, old.Message, changed = c.Status, c.Reason, c.Message, true
		}
	}
	return changed
}
