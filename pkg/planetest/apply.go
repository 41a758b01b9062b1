package planetest

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// FieldManager is the manager of the fields that [Plane.Apply] sets.
const FieldManager = "planetest"

// Apply applies objects with server-side apply, and returns the results. CRDs
// come first, until they are served, then namespaces, then the others in order.
// An object that needs a namespace and has none gets that of [Plane.In], else
// "default". Unknown fields fail the test.
func (p *Plane) Apply(t TB, sources ...Source) []*unstructured.Unstructured {
	t.Helper()
	applied, err := p.apply(contextOf(t), sources...)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return applied
}

func (p *Plane) apply(ctx context.Context, sources ...Source) ([]*unstructured.Unstructured, error) {
	ctx, cancel := p.within(ctx)
	defer cancel()
	var all []sourced
	for _, s := range sources {
		objects, err := s(p.server.scheme)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	applied := make([]*unstructured.Unstructured, len(all))
	for rank := range lastRank + 1 {
		var definitions []*unstructured.Unstructured
		for i, o := range all {
			if rankOf(o) != rank {
				continue
			}
			done, err := p.applyOne(ctx, o.Unstructured)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", o.from, describe(o.Unstructured), err)
			}
			applied[i] = done
			if rank == 0 {
				definitions = append(definitions, done)
			}
		}
		// All CRDs are established side by side.
		if err := p.admin().established(ctx, definitions); err != nil {
			return nil, err
		}
	}
	return applied, nil
}

func crdKind() schema.GroupKind {
	return schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

// rankOf ranks objects in the order in which they need each other.
func rankOf(o sourced) int {
	switch o.GroupVersionKind().GroupKind() {
	case crdKind():
		return 0
	case schema.GroupKind{Kind: "Namespace"}:
		return 1
	}
	return lastRank
}

const lastRank = 2

func (p *Plane) applyOne(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o = o.DeepCopy()
	resource, err := p.resource(o)
	if err != nil {
		return nil, err
	}
	if o.GetName() == "" {
		return nil, errors.New("metadata.name is missing")
	}
	o.SetManagedFields(nil) // those of an object that was read; the server refuses them
	data, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return resource.Patch(ctx, o.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: FieldManager, Force: new(true), FieldValidation: metav1.FieldValidationStrict,
	})
}

// established waits until the custom resources of CRDs are served. An updated CRD
// is established already, but may have new versions.
func (p *Plane) established(ctx context.Context, definitions []*unstructured.Unstructured) error {
	var resources []schema.GroupVersionResource
	for _, d := range definitions {
		if _, err := p.waitFor(ctx, d, Condition("Established")); err != nil {
			return err
		}
		for _, v := range versionsOf(d) {
			if v.served {
				resources = append(resources, resourceOf(d, v.name))
			}
		}
	}
	return p.server.plane.AwaitDiscovery(ctx, resources)
}

// resource is the client of an object's resource. It sets the namespace of an
// object that must have one and has none.
func (p *Plane) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := p.admin().RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		o.SetNamespace("")
		return p.Dynamic().Resource(mapping.Resource), nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(p.namespace)
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return p.Dynamic().Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// describe names an object: Widget default/lever.
func describe(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + cache.MetaObjectToName(o).String()
}
