package authz

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// bySubject is the index of bindings by who is bound.
const bySubject = "subject"

// cached reads roles and bindings from informers.
type cached struct {
	roles               listers.RoleLister
	clusterRoles        listers.ClusterRoleLister
	roleBindings        listers.RoleBindingLister
	clusterRoleBindings listers.ClusterRoleBindingLister
	ofNamespace         cache.Indexer
	ofPlane             cache.Indexer
	// changes is the informer of cluster roles.
	changes cache.SharedIndexInformer
}

var (
	_ rbac.Reader = &cached{}
	_ rbac.Index  = &cached{}
)

// newCached starts the informers, which end with the context, and returns when
// they are synced.
func newCached(ctx context.Context, factory informers.SharedInformerFactory) (*cached, error) {
	of := factory.Rbac().V1()
	namespaced, whole := of.RoleBindings().Informer(), of.ClusterRoleBindings().Informer()
	err := namespaced.AddIndexers(cache.Indexers{bySubject: func(obj any) ([]string, error) {
		b, ok := obj.(*rbacv1.RoleBinding)
		if !ok {
			return nil, fmt.Errorf("%T is no RoleBinding", obj)
		}
		return indexed(b.Subjects, b.Namespace), nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index role bindings: %w", err)
	}
	err = whole.AddIndexers(cache.Indexers{bySubject: func(obj any) ([]string, error) {
		b, ok := obj.(*rbacv1.ClusterRoleBinding)
		if !ok {
			return nil, fmt.Errorf("%T is no ClusterRoleBinding", obj)
		}
		return indexed(b.Subjects, ""), nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index cluster role bindings: %w", err)
	}
	c := &cached{
		roles: of.Roles().Lister(), clusterRoles: of.ClusterRoles().Lister(),
		roleBindings: of.RoleBindings().Lister(), clusterRoleBindings: of.ClusterRoleBindings().Lister(),
		ofNamespace: namespaced.GetIndexer(), ofPlane: whole.GetIndexer(), changes: of.ClusterRoles().Informer(),
	}
	factory.StartWithContext(ctx)
	if res := factory.WaitForCacheSyncWithContext(ctx); res.Err != nil {
		return nil, fmt.Errorf("roles and bindings were not read: %w", res.AsError())
	}
	return c, nil
}

func indexed(subjects []rbacv1.Subject, namespace string) []string {
	var all []string
	for _, k := range rbac.Keys(subjects, namespace) {
		all = append(all, name(namespace, k))
	}
	return all
}

// name is what the index calls a subject in a namespace.
func name(namespace string, k rbac.Key) string { return namespace + "/" + k.Kind + "/" + k.Name }

// Role implements rbac.Reader.
func (c *cached) Role(namespace, name string) (*rbacv1.Role, error) {
	return c.roles.Roles(namespace).Get(name)
}

// ClusterRole implements rbac.Reader.
func (c *cached) ClusterRole(name string) (*rbacv1.ClusterRole, error) {
	return c.clusterRoles.Get(name)
}

// RoleBindings implements rbac.Reader.
func (c *cached) RoleBindings(namespace string) ([]*rbacv1.RoleBinding, error) {
	return c.roleBindings.RoleBindings(namespace).List(labels.Everything())
}

// ClusterRoleBindings implements rbac.Reader.
func (c *cached) ClusterRoleBindings() ([]*rbacv1.ClusterRoleBinding, error) {
	return c.clusterRoleBindings.List(labels.Everything())
}

// RoleBindingsOf implements rbac.Index.
func (c *cached) RoleBindingsOf(namespace string, key rbac.Key) ([]*rbacv1.RoleBinding, error) {
	return found[rbacv1.RoleBinding](c.ofNamespace, name(namespace, key))
}

// ClusterRoleBindingsOf implements rbac.Index.
func (c *cached) ClusterRoleBindingsOf(key rbac.Key) ([]*rbacv1.ClusterRoleBinding, error) {
	return found[rbacv1.ClusterRoleBinding](c.ofPlane, name("", key))
}

func found[T any](index cache.Indexer, name string) ([]*T, error) {
	objects, err := index.ByIndex(bySubject, name)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	all := make([]*T, 0, len(objects))
	for _, o := range objects {
		if typed, ok := o.(*T); ok {
			all = append(all, typed)
		}
	}
	return all, nil
}
