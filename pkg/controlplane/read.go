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
