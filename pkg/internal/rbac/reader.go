package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Reader reads roles and bindings, usually from a cache. Callers never modify the
// results.
type Reader interface {
	// Role returns a role, or an error of apierrors.IsNotFound.
	Role(namespace, name string) (*rbacv1.Role, error)

	// ClusterRole returns a cluster role, or an error of apierrors.IsNotFound.
	ClusterRole(name string) (*rbacv1.ClusterRole, error)

	// Bindings returns at least the bindings of a namespace among whose Keys the key
	// is, in any order. It may return others, because subjects are always compared.
	// Those of the namespace "" are the cluster-wide ones, which have the fields of a
	// RoleBinding. A request asks for each key of its user.
	Bindings(namespace string, key Key) ([]*rbacv1.RoleBinding, error)
}

// Key is what a binding can be found by: a User or a Group. Service accounts are
// users.
type Key struct {
	Kind string // rbacv1.UserKind or rbacv1.GroupKind
	Name string
}

// Keys returns the keys of a binding: one for each subject that a user can match.
// The namespace is that of the binding, and "" for a cluster-wide one.
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

// accountNamespace is the namespace of a subject's service account: bindings may
// leave out their own namespace.
func accountNamespace(subject *rbacv1.Subject, binding string) string {
	if subject.Namespace != "" {
		return subject.Namespace
	}
	return binding
}
