package feed

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/stored"
)

// object makes an Object of the stored value in a place (see [keys.Space.Place]).
func (f *Feed) object(place string, value []byte) (*Object, error) {
	s, err := stored.Decode(value)
	if err != nil {
		return nil, err
	}
	resource, ok := keys.Resource(place, s.Metadata.Namespace, s.Metadata.Name)
	if !ok {
		return nil, fmt.Errorf("the key does not match name %q in namespace %q", s.Metadata.Name, s.Metadata.Namespace)
	}
	o := &Object{
		Type:       f.typeOf(resource, s.TypeMeta),
		Name:       place[len(place)-len(s.Metadata.Name):],
		UID:        UIDOf(types.UID(s.Metadata.UID)),
		Deleting:   s.Metadata.DeletionTimestamp != nil,
		Foreground: slices.Contains(s.Metadata.Finalizers, metav1.FinalizerDeleteDependents),
		Orphan:     slices.Contains(s.Metadata.Finalizers, metav1.FinalizerOrphanDependents),
	}
	if n := len(s.Metadata.Namespace); n > 0 {
		end := len(place) - len(o.Name) - 1
		o.Namespace = place[end-n : end]
	}
	if refs := s.Metadata.OwnerReferences; len(refs) > 0 {
		o.owners = make([]Owner, len(refs))
		for i, ref := range refs {
			kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
			o.owners[i] = Owner{
				UID: UIDOf(ref.UID), Blocks: ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion,
				identity: identityOf(kind.Group, kind.Kind, ref.Name),
			}
		}
	}
	return o, nil
}

// typeKey is what objects of a type have in common: their resource, apiVersion and
// kind.
type typeKey struct {
	resource         schema.GroupResource
	apiVersion, kind string
}

// typeOf returns the shared Type of objects of a resource. Only the goroutine that
// takes in stored values calls it.
func (f *Feed) typeOf(resource schema.GroupResource, meta metav1.TypeMeta) *Type {
	key := typeKey{resource, meta.APIVersion, meta.Kind}
	if t, ok := f.types[key]; ok {
		return t
	}
	// The names are parts of a key, which the type would keep in memory.
	key.resource = schema.GroupResource{Group: strings.Clone(resource.Group), Resource: strings.Clone(resource.Resource)}
	t := &Type{Resource: key.resource, Kind: schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)}
	f.types[key] = t
	return t
}
