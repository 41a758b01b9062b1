package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Reader reads roles and bindings, as a rule from a cache: each request that
// is authorized reads all bindings once. What it returns is never written to.
type Reader interface {
	// Role returns a role, or an error of apierrors.IsNotFound.
	Role(namespace, name string) (*rbacv1.Role, error)

	// ClusterRole returns a cluster role, or an error of apierrors.IsNotFound.
	ClusterRole(name string) (*rbacv1.ClusterRole, error)

	// RoleBindings returns all bindings of a namespace, in any order.
	RoleBindings(namespace string) ([]*rbacv1.RoleBinding, error)

	// ClusterRoleBindings returns all cluster-wide bindings, in any order.
	ClusterRoleBindings() ([]*rbacv1.ClusterRoleBinding, error)
}

// Index finds the bindings of one subject. A Reader that is also an Index is
// asked for the bindings of the user and of each of their groups instead of
// for all of them, which pays from some hundred bindings on. Both methods may
// return bindings of others too: subjects are always compared.
type Index interface {
	// ClusterRoleBindingsOf returns at least the cluster-wide bindings among
	// whose Keys the key is.
	ClusterRoleBindingsOf(key Key) ([]*rbacv1.ClusterRoleBinding, error)

	// RoleBindingsOf returns at least the bindings of the namespace among
	// whose Keys the key is.
	RoleBindingsOf(namespace string, key Key) ([]*rbacv1.RoleBinding, error)
}

// Key is who a binding can be found by: a User or a Group. Service accounts
// are users.
type Key struct {
	Kind string // rbacv1.UserKind or rbacv1.GroupKind
	Name string
}

// Keys returns what an Index files a binding under: one key for each subject
// that somebody can be. The namespace is that of the binding, and "" for a
// cluster-wide one.
func Keys(subjects []rbacv1.Subject, namespace string) []Key {
	keys := make([]Key, 0, len(subjects))
	for i := range subjects {
		subject := &subjects[i]
		switch subject.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			keys = append(keys, Key{Kind: subject.Kind, Name: subject.Name})
		case rbacv1.ServiceAccountKind:
			if home := accountNamespace(subject, namespace); home != "" {
				keys = append(keys, Key{Kind: rbacv1.UserKind, Name: serviceaccount.MakeUsername(home, subject.Name)})
			}
		}
	}
	return keys
}

// accountNamespace is where the service account of a subject lives: bindings
// may leave out their own namespace.
func accountNamespace(subject *rbacv1.Subject, binding string) string {
	if subject.Namespace != "" {
		return subject.Namespace
	}
	return binding
}
