package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Operation is what a stored role or binding needs to be as a plane wants it.
type Operation string

const (
	// OperationNone leaves the stored object as it is.
	OperationNone Operation = "none"

	// OperationCreate creates the object, as none is stored.
	OperationCreate Operation = "create"

	// OperationUpdate writes the object over the stored one.
	OperationUpdate Operation = "update"

	// OperationRecreate deletes the stored binding, with its UID as the
	// precondition, and creates the object: a role reference is immutable.
	OperationRecreate Operation = "recreate"
)

// ReconcileClusterRole returns the role to write so that the stored one has at
// least what is wanted. Without a stored one (nil) it is what is wanted.
//
// Rules, aggregation selectors, labels and annotations are only ever added,
// and what the stored role says of a label or annotation stays. Only an
// aggregation that is not wanted is taken away, as it would overwrite the
// rules. A stored role with the annotation
// rbac.authorization.kubernetes.io/autoupdate: "false" is left alone. Neither
// argument is written to. This is what Kubernetes does at each start
// (k8s.io/component-helpers/auth/rbac/reconciliation).
func ReconcileClusterRole(stored, wanted *rbacv1.ClusterRole) (*rbacv1.ClusterRole, Operation) {
	if stored == nil {
		return wanted.DeepCopy(), OperationCreate
	}
	role := stored.DeepCopy()
	if protected(stored) {
		return role, OperationNone
	}
	changed := addMeta(&role.ObjectMeta, &wanted.ObjectMeta)
	changed = addRules(&role.Rules, wanted.Rules) || changed
	changed = addSelectors(&role.AggregationRule, wanted.AggregationRule) || changed
	return role, update(changed)
}

// ReconcileRole is ReconcileClusterRole for a role, which has no aggregation.
func ReconcileRole(stored, wanted *rbacv1.Role) (*rbacv1.Role, Operation) {
	if stored == nil {
		return wanted.DeepCopy(), OperationCreate
	}
	role := stored.DeepCopy()
	if protected(stored) {
		return role, OperationNone
	}
	changed := addMeta(&role.ObjectMeta, &wanted.ObjectMeta)
	changed = addRules(&role.Rules, wanted.Rules) || changed
	return role, update(changed)
}

// ReconcileClusterRoleBinding returns the binding to write so that the stored
// one has at least the wanted subjects, and is of the wanted role; else it is
// like ReconcileClusterRole.
func ReconcileClusterRoleBinding(stored, wanted *rbacv1.ClusterRoleBinding) (*rbacv1.ClusterRoleBinding, Operation) {
	switch {
	case stored == nil:
		return wanted.DeepCopy(), OperationCreate
	case protected(stored):
		return stored.DeepCopy(), OperationNone
	case !sameRole(stored.RoleRef, wanted.RoleRef):
		return wanted.DeepCopy(), OperationRecreate
	}
	binding := stored.DeepCopy()
	changed := addMeta(&binding.ObjectMeta, &wanted.ObjectMeta)
	changed = addSubjects(&binding.Subjects, wanted.Subjects) || changed
	return binding, update(changed)
}

// ReconcileRoleBinding is ReconcileClusterRoleBinding for the binding of a
// namespace.
func ReconcileRoleBinding(stored, wanted *rbacv1.RoleBinding) (*rbacv1.RoleBinding, Operation) {
	switch {
	case stored == nil:
		return wanted.DeepCopy(), OperationCreate
	case protected(stored):
		return stored.DeepCopy(), OperationNone
	case !sameRole(stored.RoleRef, wanted.RoleRef):
		return wanted.DeepCopy(), OperationRecreate
	}
	binding := stored.DeepCopy()
	changed := addMeta(&binding.ObjectMeta, &wanted.ObjectMeta)
	changed = addSubjects(&binding.Subjects, wanted.Subjects) || changed
	return binding, update(changed)
}

// protected says whether somebody wants to keep a default as they wrote it.
func protected(stored metav1.Object) bool {
	return stored.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false"
}

func update(changed bool) Operation {
	if changed {
		return OperationUpdate
	}
	return OperationNone
}

// addMeta adds labels and annotations, and returns whether there were any to
// add, as the other functions that add do.
func addMeta(object, wanted *metav1.ObjectMeta) bool {
	labels := addStrings(&object.Labels, wanted.Labels)
	annotations := addStrings(&object.Annotations, wanted.Annotations)
	return labels || annotations
}

func addStrings(to *map[string]string, wanted map[string]string) bool {
	merged := maps.Clone(wanted)
	if merged == nil {
		return false
	}
	maps.Copy(merged, *to)
	if len(merged) == len(*to) {
		return false
	}
	*to = merged
	return true
}

func addRules(to *[]rbacv1.PolicyRule, wanted []rbacv1.PolicyRule) bool {
	missing := Covers(*to, wanted)
	*to = append(*to, missing...)
	return len(missing) > 0
}

func addSelectors(to **rbacv1.AggregationRule, wanted *rbacv1.AggregationRule) bool {
	if wanted == nil {
		changed := *to != nil
		*to = nil
		return changed
	}
	if *to == nil && len(wanted.ClusterRoleSelectors) > 0 {
		*to = &rbacv1.AggregationRule{}
	}
	changed := false
	for i := range wanted.ClusterRoleSelectors {
		selector := &wanted.ClusterRoleSelectors[i]
		if !slices.ContainsFunc((*to).ClusterRoleSelectors, func(known metav1.LabelSelector) bool {
			return equality.Semantic.DeepEqual(known, *selector)
		}) {
			(*to).ClusterRoleSelectors = append((*to).ClusterRoleSelectors, *selector.DeepCopy())
			changed = true
		}
	}
	return changed
}

func addSubjects(to *[]rbacv1.Subject, wanted []rbacv1.Subject) bool {
	changed := false
	for _, subject := range wanted {
		if !slices.ContainsFunc(*to, func(known rbacv1.Subject) bool { return defaulted(known) == defaulted(subject) }) {
			*to = append(*to, subject)
			changed = true
		}
	}
	return changed
}

// defaulted fills in the API group as the API does, so that a wanted subject
// without one is found again.
func defaulted(s rbacv1.Subject) rbacv1.Subject {
	if s.APIGroup == "" && s.Kind != rbacv1.ServiceAccountKind {
		s.APIGroup = rbacv1.GroupName
	}
	return s
}

// sameRole compares role references, with the API group as the API fills it in.
func sameRole(a, b rbacv1.RoleRef) bool {
	if a.APIGroup == "" {
		a.APIGroup = rbacv1.GroupName
	}
	if b.APIGroup == "" {
		b.APIGroup = rbacv1.GroupName
	}
	return a == b
}
