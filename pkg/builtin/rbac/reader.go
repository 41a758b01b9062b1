package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	held "github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// reader reads roles and bindings from the API. They are written rarely enough
// to do without a cache of our own.
type reader struct {
	ctx    context.Context //nolint:containedctx // a reader is for one request, and its methods take no context
	client rbacclient.RbacV1Interface
	// version is the resource version to ask for.
	version string
}

// The resource versions of a reader.
const (
	cached = "0" // the watch cache answers
	latest = ""  // the storage answers
)

var _ held.Reader = reader{}

// Role reads one role.
func (r reader) Role(namespace, name string) (*rbacv1.Role, error) {
	return r.client.Roles(namespace).Get(r.ctx, name, metav1.GetOptions{ResourceVersion: r.version})
}

// ClusterRole reads one cluster role.
func (r reader) ClusterRole(name string) (*rbacv1.ClusterRole, error) {
	return r.client.ClusterRoles().Get(r.ctx, name, metav1.GetOptions{ResourceVersion: r.version})
}

// RoleBindings reads those of a namespace.
func (r reader) RoleBindings(namespace string) ([]*rbacv1.RoleBinding, error) {
	list, err := r.client.RoleBindings(namespace).List(r.ctx, metav1.ListOptions{ResourceVersion: r.version})
	if err != nil {
		return nil, ignoreNotServed(err)
	}
	return pointers(list.Items), nil
}

// ClusterRoleBindings reads all of them.
func (r reader) ClusterRoleBindings() ([]*rbacv1.ClusterRoleBinding, error) {
	list, err := r.client.ClusterRoleBindings().List(r.ctx, metav1.ListOptions{ResourceVersion: r.version})
	if err != nil {
		return nil, ignoreNotServed(err)
	}
	return pointers(list.Items), nil
}

// ignoreNotServed: where a kind of binding is not served, none binds anybody.
func ignoreNotServed(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func pointers[T any](items []T) []*T {
	all := make([]*T, 0, len(items))
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}
