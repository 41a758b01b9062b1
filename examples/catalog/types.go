package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Plan is what users see.
type Plan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec Offer `json:"spec"`
}

// Offer is what plans and planspecs have in common.
type Offer struct {
	Description string `json:"description,omitempty"`
	Price       int64  `json:"price"`
}

// PlanList is a list of plans.
type PlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Plan `json:"items"`
}

// planSpec has the fields of the custom resource that this program reads or writes. The cost is
// not among them: it stays what it is, and cannot be published by mistake.
type planSpec struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Offer  `json:",inline"`
		Public bool `json:"public"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (p *Plan) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *PlanList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Plan, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Plan)
	}
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *planSpec) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}
