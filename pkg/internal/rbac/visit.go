package rbac

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
)

// visitor sees the rules of one binding of somebody, or why they cannot be
// read. It returns whether it wants to see more.
type visitor func(from source, rules []rbacv1.PolicyRule, err error) bool

// visit shows what somebody holds: cluster-wide bindings first and then those
// of the namespace, if any.
func (a *Authorizer) visit(w who, namespace string, see visitor) {
	more := true
	if a.index == nil {
		more = a.visitClusterWide(w, see)
	} else {
		for i := 0; more && i < w.keys(); i++ {
			more = a.visitClusterWideOf(w, i, see)
		}
	}
	if !more || namespace == "" {
		return
	}
	if a.index == nil {
		a.visitNamespace(w, namespace, see)
		return
	}
	for i := 0; more && i < w.keys(); i++ {
		more = a.visitNamespaceOf(w, i, namespace, see)
	}
}

func (a *Authorizer) visitClusterWide(w who, see visitor) bool {
	bindings, err := a.reader.ClusterRoleBindings()
	if err != nil {
		return see(source{}, nil, err)
	}
	for _, binding := range bindings {
		if !a.seeClusterWide(w, binding, see) {
			return false
		}
	}
	return true
}

// visitClusterWideOf shows the bindings of one key, without those that were
// shown for a key before it.
func (a *Authorizer) visitClusterWideOf(w who, i int, see visitor) bool {
	bindings, err := a.index.ClusterRoleBindingsOf(w.key(i))
	if err != nil {
		return see(source{}, nil, err)
	}
	for _, binding := range bindings {
		if i > 0 && w.before(i).among(binding.Subjects, "") != nil {
			continue
		}
		if !a.seeClusterWide(w, binding, see) {
			return false
		}
	}
	return true
}

func (a *Authorizer) seeClusterWide(w who, binding *rbacv1.ClusterRoleBinding, see visitor) bool {
	subject := w.among(binding.Subjects, "")
	if subject == nil {
		return true
	}
	rules, err := a.rulesOf(&binding.RoleRef, "")
	return see(source{kind: "ClusterRoleBinding", name: binding.Name, role: &binding.RoleRef, subject: subject}, rules, err)
}

func (a *Authorizer) visitNamespace(w who, namespace string, see visitor) {
	bindings, err := a.reader.RoleBindings(namespace)
	if err != nil {
		see(source{}, nil, err)
		return
	}
	for _, binding := range bindings {
		if !a.seeNamespace(w, binding, namespace, see) {
			return
		}
	}
}

// visitNamespaceOf is visitClusterWideOf for the bindings of a namespace.
func (a *Authorizer) visitNamespaceOf(w who, i int, namespace string, see visitor) bool {
	bindings, err := a.index.RoleBindingsOf(namespace, w.key(i))
	if err != nil {
		return see(source{}, nil, err)
	}
	for _, binding := range bindings {
		if i > 0 && w.before(i).among(binding.Subjects, namespace) != nil {
			continue
		}
		if !a.seeNamespace(w, binding, namespace, see) {
			return false
		}
	}
	return true
}

func (a *Authorizer) seeNamespace(w who, binding *rbacv1.RoleBinding, namespace string, see visitor) bool {
	subject := w.among(binding.Subjects, namespace)
	if subject == nil {
		return true
	}
	rules, err := a.rulesOf(&binding.RoleRef, namespace)
	return see(source{
		kind: "RoleBinding", name: binding.Name, namespace: namespace, role: &binding.RoleRef, subject: subject,
	}, rules, err)
}

// RulesOf returns the rules of a role that is bound, or would be: those that
// Uncovered has to see before somebody may write the binding. The namespace is
// that of the binding, and "" for a cluster-wide one.
func (a *Authorizer) RulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	return a.rulesOf(&ref, namespace)
}

func (a *Authorizer) rulesOf(ref *rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		role, err := a.reader.Role(namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "ClusterRole":
		role, err := a.reader.ClusterRole(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	default:
		return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
}
