package authz

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// bySubject is the index of bindings by subject.
const bySubject = "subject"

// cached reads roles and bindings from informers.
type cached struct {
	roles               listers.RoleLister
	clusterRoles        listers.ClusterRoleLister
	clusterRoleBindings listers.ClusterRoleBindingLister
	ofNamespace         cache.Indexer
	ofPlane             cache.Indexer
	// changes is the informer of cluster roles.
	changes cache.SharedIndexInformer
}

var _ rbac.Reader = &cached{}

// newCached starts the informers, which end with the context, and returns when
// they are synced. It calls changed while an object is being changed.
func newCached(ctx context.Context, factory informers.SharedInformerFactory, changed func()) (*cached, error) {
	of := factory.Rbac().V1()
	namespaced, whole := of.RoleBindings().Informer(), of.ClusterRoleBindings().Informer()
	for _, bindings := range []cache.SharedIndexInformer{namespaced, whole} {
		if err := bindings.AddIndexers(cache.Indexers{bySubject: subjects}); err != nil {
			return nil, fmt.Errorf("index bindings by subject: %w", err)
		}
	}
	// An index is told of every change, and unlike a handler it needs no goroutine. Who
	// reads the informer then waits until the object is changed.
	told := cache.Indexers{"changes": func(any) ([]string, error) { changed(); return nil, nil }}
	for _, all := range []cache.SharedIndexInformer{namespaced, whole, of.Roles().Informer(), of.ClusterRoles().Informer()} {
		if err := all.AddIndexers(told); err != nil {
			return nil, fmt.Errorf("follow roles and bindings: %w", err)
		}
	}
	c := &cached{
		roles: of.Roles().Lister(), clusterRoles: of.ClusterRoles().Lister(), clusterRoleBindings: of.ClusterRoleBindings().Lister(),
		ofNamespace: namespaced.GetIndexer(), ofPlane: whole.GetIndexer(), changes: of.ClusterRoles().Informer(),
	}
	factory.StartWithContext(ctx)
	if res := factory.WaitForCacheSyncWithContext(ctx); res.Err != nil {
		return nil, fmt.Errorf("roles and bindings were not read: %w", res.AsError())
	}
	return c, nil
}

// subjects returns the index keys of a binding.
func subjects(obj any) ([]string, error) {
	b := binding(obj)
	if b == nil {
		return nil, fmt.Errorf("%T is not a binding", obj)
	}
	var all []string
	for _, k := range rbac.Keys(b.Subjects, b.Namespace) {
		all = append(all, name(b.Namespace, k))
	}
	return all, nil
}

// binding returns a cached binding of either kind as a RoleBinding: both kinds
// have the same fields.
func binding(obj any) *rbacv1.RoleBinding {
	switch b := obj.(type) {
	case *rbacv1.RoleBinding:
		return b
	case *rbacv1.ClusterRoleBinding:
		return (*rbacv1.RoleBinding)(b)
	}
	return nil
}

// name is the index key of a subject in a namespace.
func name(namespace string, k rbac.Key) string { return namespace + "/" + k.Kind + "/" + k.Name }

// Role implements rbac.Reader.
func (c *cached) Role(namespace, name string) (*rbacv1.Role, error) {
	return c.roles.Roles(namespace).Get(name)
}

// ClusterRole implements rbac.Reader.
func (c *cached) ClusterRole(name string) (*rbacv1.ClusterRole, error) {
	return c.clusterRoles.Get(name)
}

// Bindings implements rbac.Reader.
func (c *cached) Bindings(namespace string, key rbac.Key) ([]*rbacv1.RoleBinding, error) {
	index := c.ofNamespace
	if namespace == "" {
		index = c.ofPlane
	}
	objects, err := index.ByIndex(bySubject, name(namespace, key))
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	all := make([]*rbacv1.RoleBinding, 0, len(objects))
	for _, o := range objects {
		all = append(all, binding(o))
	}
	return all, nil
}
