package controlplane

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

// admission gives the parts' plugins what they ask for, and chains them.
func (p *Plane) admission(client kubernetes.Interface, authorizer authorizer.Authorizer) (admission.Interface, error) {
	dynamicClient, err := dynamic.NewForConfig(p.loopback.config)
	if err != nil {
		return nil, fmt.Errorf("dynamic client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	initialize := initializer.New(client, dynamicClient, p.informers, authorizer, utilfeature.DefaultFeatureGate,
		effectiveVersion(), p.signals.drained, mapper)
	var chain []admission.Interface
	var errs []error
	for _, a := range p.plan.admission {
		initialize.Initialize(a.value)
		if v, ok := a.value.(admission.InitializationValidator); ok {
			if err := v.ValidateInitialization(); err != nil {
				errs = append(errs, fmt.Errorf("part %q: admission %q: %w", a.part, a.name, err))
			}
		}
		chain = append(chain, a.value)
	}
	return reasoned{reinvoking{admission.NewChainHandler(chain...)}}, errors.Join(errs...)
}

// Admission are all admission plugins of the plane. Objects that parts ask it about may be of
// any type.
func (p *Plane) Admission() admission.Interface { return p.base.AdmissionControl }

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

// reasoned gives errors of plugins a reason: one without is not the client's.
type reasoned struct{ plugins }

// Admit implements admission.MutationInterface.
func (r reasoned) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return withReason(r.plugins.Admit(ctx, a, o))
}

// Validate implements admission.ValidationInterface.
func (r reasoned) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return withReason(r.plugins.Validate(ctx, a, o))
}

// withReason is an error as upstream's handlers answer it, as an InternalError if it has
// no reason.
func withReason(err error) error {
	if err == nil {
		return nil
	}
	if _, known := err.(apierrors.APIStatus); known { // as upstream: a wrapped one is not looked at
		return err
	}
	return apierrors.NewInternalError(err)
}
