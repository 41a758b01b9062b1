package rbac

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
)

// visitor gets the rules of one binding of somebody, or why they cannot be read. It
// returns whether it wants more.
type visitor func(from source, rules []rbacv1.PolicyRule, err error) bool

// visit shows the rules somebody holds: those of cluster-wide bindings first and
// then those of the namespace, if any.
func (a *Authorizer) visit(w subject, namespace string, see visitor) {
	if a.visitIn(w, "", see) && namespace != "" {
		a.visitIn(w, namespace, see)
	}
}

// visitIn shows the bindings of a namespace, or the cluster-wide ones. One that
// matches several keys is shown with its first subject only.
func (a *Authorizer) visitIn(w subject, namespace string, see visitor) bool {
	for i := range w.keys() {
		bindings, err := a.reader.Bindings(namespace, w.key(i))
		if err != nil {
			return see(source{}, nil, err)
		}
		for _, binding := range bindings {
			subject, key := w.among(binding.Subjects, namespace)
			if key != i {
				continue
			}
			rules, err := a.RulesOf(&binding.RoleRef, namespace)
			if !see(source{binding: binding, namespace: namespace, subject: subject}, rules, err) {
				return false
			}
		}
	}
	return true
}

// RulesOf returns the rules of a role as bound in a namespace: Confirm checks them
// before somebody may write the binding. The namespace is that of the binding, and
// "" for a cluster-wide one.
func (a *Authorizer) RulesOf(ref *rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
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
