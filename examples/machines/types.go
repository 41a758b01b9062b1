package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Machine is a row of the table.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Rack string `json:"rack"`
	} `json:"spec"`
	Status struct {
		Restarts int64 `json:"restarts,omitempty"`
	} `json:"status,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (m *Machine) DeepCopyObject() runtime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// MachineList is a list of machines.
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Machine `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *MachineList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Machine, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Machine)
	}
	return &out
}

// Restart is what is posted to restart a machine.
type Restart struct {
	metav1.TypeMeta `json:",inline"`

	Reason string `json:"reason"`
}

// DeepCopyObject implements runtime.Object.
func (r *Restart) DeepCopyObject() runtime.Object { c := *r; return &c }

// OpenAPIModelName is its name in OpenAPI.
func (Restart) OpenAPIModelName() string { return "com.example.fleet.v1.Restart" }
