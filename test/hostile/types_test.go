package hostile

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Melon is an object of a typed group that has no protobuf form.
type Melon struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MelonSpec   `json:"spec,omitempty"`
	Status MelonStatus `json:"status,omitempty"`
}

// MelonSpec has a field of every shape that bad input breaks in its own way.
type MelonSpec struct {
	Weight int32             `json:"weight,omitempty"`
	Sweet  bool              `json:"sweet,omitempty"`
	Seeds  []Seed            `json:"seeds,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Notes  map[string]string `json:"notes,omitempty"`
}

// Seed is merged by name.
type Seed struct {
	Name  string `json:"name"`
	Count int64  `json:"count,omitempty"`
}

// MelonStatus is what a controller reports.
type MelonStatus struct {
	Ripe bool `json:"ripe,omitempty"`
}

// MelonList is a list of melons.
type MelonList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Melon `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (m *Melon) DeepCopyObject() runtime.Object {
	out := &Melon{}
	m.deepCopyInto(out)
	return out
}

func (m *Melon) deepCopyInto(out *Melon) {
	*out = *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Seeds = append([]Seed(nil), m.Spec.Seeds...)
	if m.Spec.Notes != nil {
		out.Spec.Notes = make(map[string]string, len(m.Spec.Notes))
		for k, v := range m.Spec.Notes {
			out.Spec.Notes[k] = v
		}
	}
}

// DeepCopyObject implements runtime.Object.
func (l *MelonList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Melon, len(l.Items))
	for i := range l.Items {
		l.Items[i].deepCopyInto(&out.Items[i])
	}
	return &out
}

// garden is the typed group: melons with a status, a validation and a verb less.
func garden() controlplane.Part {
	return apis.NewGroup(schema.GroupVersion{Group: "garden.example.com", Version: "v1"}, nil, nil,
		apis.Resource[Melon, MelonList]("melons",
			apis.Status(),
			apis.Verbs("create", "get", "list", "watch", "update", "patch", "delete"),
			apis.Validate(func(_ context.Context, m *Melon) field.ErrorList {
				if m.Spec.Weight < 0 {
					return field.ErrorList{field.Invalid(field.NewPath("spec", "weight"), m.Spec.Weight, "a melon weighs something")}
				}
				return nil
			}),
		))
}
