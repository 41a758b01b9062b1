package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	held "github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// reader reads roles and bindings from the API, each list once. They are written
// rarely enough to do without a cache of our own.
type reader struct {
	ctx    context.Context //nolint:containedctx // a reader is for one request, and its methods take no context
	client rbacclient.RbacV1Interface
	// version is the resource version to ask for.
	version string
	// bindings are those that were listed, by namespace.
	bindings map[string][]*rbacv1.RoleBinding
}

func newReader(ctx context.Context, client rbacclient.RbacV1Interface, version string) reader {
	return reader{ctx: ctx, client: client, version: version, bindings: map[string][]*rbacv1.RoleBinding{}}
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

// Bindings returns all bindings of a namespace, or the cluster-wide ones, whatever their
// subjects.
func (r reader) Bindings(namespace string, _ held.Key) ([]*rbacv1.RoleBinding, error) {
	all, known := r.bindings[namespace]
	if known {
		return all, nil
	}
	// Where a kind of binding is not served, none binds anybody.
	options := metav1.ListOptions{ResourceVersion: r.version}
	if namespace == "" {
		list, err := r.client.ClusterRoleBindings().List(r.ctx, options)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, (*rbacv1.RoleBinding)(&list.Items[i])) // it has the same fields
		}
	} else {
		list, err := r.client.RoleBindings(namespace).List(r.ctx, options)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	r.bindings[namespace] = all
	return all, nil
}
