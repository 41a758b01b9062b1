package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	apistorage "k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	corerules "github.com/sailplane-dev/sailplane/pkg/internal/rules/core"
)

// coreKinds registers the rules of the group, and the kinds that are sent to
// sub-resources of pods. Eviction is of another group, whose version v1beta1
// has the same fields and may be sent too.
func coreKinds(s *runtime.Scheme) error {
	s.AddKnownTypes(policyv1beta1.SchemeGroupVersion, &policyv1beta1.Eviction{})
	return errors.Join(corerules.RegisterValidations(s),
		apis.RegisterKinds(corev1.SchemeGroupVersion, &corev1.Binding{})(s),
		apis.RegisterKinds(policyv1.SchemeGroupVersion, &policyv1.Eviction{})(s),
		s.AddConversionFunc(&policyv1beta1.Eviction{}, &policyv1.Eviction{}, func(a, b any, _ conversion.Scope) error {
			from, isOld := a.(*policyv1beta1.Eviction)
			to, isHub := b.(*policyv1.Eviction)
			if !isOld || !isHub {
				return fmt.Errorf("convert %T to %T", a, b)
			}
			to.ObjectMeta, to.DeleteOptions = from.ObjectMeta, from.DeleteOptions
			return nil
		}))
}

// extendPods serves bindings and evictions along with the pods.
func extendPods(p *controlplane.Plan, r controlplane.Resource) controlplane.Resource {
	if r.Name != "pods" {
		return r
	}
	budgets := &disruptionBudgets{}
	p.Work(controlplane.Work{Name: "pod disruption budgets", Start: budgets.start})
	build := r.Build
	r.Build = func(config controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
		versions, err := build(config)
		if err != nil {
			return nil, err
		}
		for version, paths := range versions {
			binding, ok := paths["pods/binding"].(podBinding)
			if !ok {
				return nil, fmt.Errorf("%s/pods: subresource binding is missing", version)
			}
			paths["bindings"] = bindings{binding}
			paths["pods/eviction"] = podEviction{pods: binding.pods, budgets: budgets}
		}
		return versions, nil
	}
	return r
}

// podStore is the store of pods, for changes that the server makes: they bypass
// the rules for clients.
type podStore struct{ *registry.Store }

// change updates a pod and returns it. Errors of the storage become errors for
// clients; those of do stay as they are.
func (s podStore) change(
	ctx context.Context, name string, pre *apistorage.Preconditions, dryRun bool, do func(*corev1.Pod) error,
) (*corev1.Pod, error) {
	key, err := s.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	err = s.Storage.GuaranteedUpdate(ctx, key, out, false, pre, apistorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("%T is not a pod", obj)
		}
		return pod, do(pod)
	}), dryRun, nil)
	err = storeerr.InterpretGetError(err, corev1.Resource("pods"), name)
	return out, storeerr.InterpretUpdateError(err, corev1.Resource("pods"), name)
}

// get is the pod as it is stored.
func (s podStore) get(ctx context.Context, name string) (*corev1.Pod, error) {
	obj, err := s.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%T is not a pod", obj))
	}
	return pod, nil
}

// setCondition adds a condition that is true, or replaces that of its type; the
// time is that at which it became true.
func setCondition(p *corev1.Pod, c corev1.PodCondition) {
	c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.Now()
	for i, have := range p.Status.Conditions {
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		p.Status.Conditions[i] = c
		return
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
}
