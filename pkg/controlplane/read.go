package controlplane

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Metadata reads the metadata of an object of the plane's groups, as the storage
// has it now. It asks the store and not the handlers in front of it, because every
// request may need the answer. A resource that is not served has no objects. The
// namespace of cluster-scoped objects is empty.
func (p *Plane) Metadata(ctx context.Context, resource schema.GroupResource, namespace, name string) (metav1.Object, error) {
	reader, ok := p.resources[resource].(rest.Getter)
	if !ok {
		return nil, apierrors.NewNotFound(resource, name)
	}
	obj, err := reader.Get(request.WithNamespace(ctx, namespace), name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return meta.Accessor(obj)
}

// StoredRevisions asks the storage for the revision of each object of a resource, by "NAME" or
// "NAMESPACE/NAME"; of one object, if it is named. A watch cache or an informer may be older where
// other servers write, too (see [Plane.IsShared]).
func (p *Plane) StoredRevisions(ctx context.Context, resource schema.GroupResource, name string) (map[string]int64, error) {
	return p.stores.Revisions(ctx, resource, name)
}

// IsShared tells whether servers of other processes may write to the storage, too.
func (p *Plane) IsShared() bool { return p.stores.Shared }

// keep keeps the storage of each resource, of any version: all versions have the same
// objects.
func (p *Plane) keep(group string, paths map[string]rest.Storage) {
	for path, storage := range paths {
		if !strings.Contains(path, "/") {
			p.resources[schema.GroupResource{Group: group, Resource: path}] = storage
		}
	}
}

// storageOf is the storage of a resource of the plane's groups.
func (p *Plane) storageOf(resource schema.GroupResource) rest.Storage { return p.resources[resource] }
