package controlplane

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// plugins is a chain of admission plugins.
type plugins interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// reinvoking calls mutating plugins a second time when a policy or a webhook
// changed the object after others had seen it: Go functions and plugins always,
// policies and webhooks where their reinvocationPolicy is IfNeeded, which they know
// from the attributes. kube-apiserver does so:
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/admission/reinvocation.go
type reinvoking struct{ plugins }

// Admit implements admission.MutationInterface.
func (r reinvoking) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := r.plugins.Admit(ctx, a, o); err != nil {
		return err
	}
	again := a.GetReinvocationContext()
	if !again.ShouldReinvoke() {
		return nil
	}
	again.SetIsReinvoke()
	return r.plugins.Admit(ctx, a, o)
}
