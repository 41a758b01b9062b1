package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/client-go/util/retry"
)

// podEviction is /eviction: a delete of a pod that its disruption budget may
// refuse. The order of the checks and their words are those of Kubernetes:
// https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
type podEviction struct {
	pods    podStore
	budgets *disruptionBudgets
}

var (
	_ rest.NamedCreater             = podEviction{}
	_ rest.GroupVersionKindProvider = podEviction{}
	_ rest.GroupVersionAcceptor     = podEviction{}
)

func (podEviction) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy does nothing: the resource destroys the shared storage.
func (podEviction) Destroy() {}

// GroupVersionKind is the kind whatever the version of pods.
func (podEviction) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// AcceptsGroupVersion tells in which versions evictions may come.
func (podEviction) AcceptsGroupVersion(gv schema.GroupVersion) bool {
	return gv == policyv1.SchemeGroupVersion || gv == policyv1beta1.SchemeGroupVersion
}

func (e podEviction) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", obj))
	}
	if name != eviction.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	how, err := deletion(eviction, options)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	pod, err := e.unprotected(ctx, name, how)
	if err == nil && pod != nil {
		return e.protected(ctx, pod, how)
	}
	return success(), err
}

func success() *metav1.Status { return &metav1.Status{Status: metav1.StatusSuccess} }

// deletion returns the options of the delete: a dry run if either says so.
func deletion(eviction *policyv1.Eviction, options *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	how := eviction.DeleteOptions
	if how == nil {
		return &metav1.DeleteOptions{DryRun: options.DryRun}, nil
	}
	if value(how.IgnoreStoreReadErrorWithClusterBreakingPotential) {
		at := field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential")
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), eviction.Name, field.ErrorList{
			field.Invalid(at, true, "can not be set for pod eviction, try after removing the option"),
		})
	}
	switch {
	case len(how.DryRun) == 0:
		how.DryRun = options.DryRun
	case len(options.DryRun) > 0 && !slices.Equal(how.DryRun, options.DryRun):
		//nolint:staticcheck // the text is Kubernetes' own
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", options.DryRun, how.DryRun)
	}
	return how, nil
}

// unprotected deletes a pod that no budget protects because it does not run: it
// has ended, is about to, or has not begun. Any other is returned.
func (e podEviction) unprotected(ctx context.Context, name string, how *metav1.DeleteOptions) (*corev1.Pod, error) {
	// If the pod changes meanwhile, it is read again, unless the client wants
	// another pod or state.
	refused := pinned(how)
	again := func(err error) bool { return !refused && apierrors.IsConflict(err) }
	var left *corev1.Pod
	err := retry.OnError(patience(), again, func() error {
		pod, err := e.pods.get(ctx, name)
		if err != nil {
			return err
		}
		if err := checkPreconditions(pod, how.Preconditions); err != nil {
			refused = true
			return err
		}
		switch {
		case ended(pod):
			return e.delete(ctx, name, how)
		case pod.Status.Phase == corev1.PodPending:
			return e.delete(ctx, name, pin(how, pod.ResourceVersion))
		}
		left = pod
		return nil
	})
	return left, err
}

// protected deletes a pod if its budget allows that.
func (e podEviction) protected(ctx context.Context, pod *corev1.Pod, how *metav1.DeleteOptions) (runtime.Object, error) {
	budgets, err := e.budgets.of(ctx, pod)
	switch {
	case err != nil:
		return nil, err
	case len(budgets) == 0:
		return success(), e.delete(ctx, pod.Name, how)
	case len(budgets) > 1:
		return &metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}, nil
	}
	budget := &budgets[0]
	if !hasCondition(pod, corev1.PodReady) && sparesUnready(budget) {
		// This takes nothing from the budget, as long as the pod does not become ready.
		err := e.delete(ctx, pod.Name, pin(how, pod.ResourceVersion))
		if apierrors.IsConflict(err) && !pinned(how) {
			err = processing(budget.Name)
		}
		return success(), err
	}
	if err := e.budgets.take(ctx, budget, pod.Name, dryrun.IsDryRun(how.DryRun)); err != nil {
		return nil, err
	}
	return success(), e.delete(ctx, pod.Name, how)
}

// ended tells whether the pod has ended or is about to.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
}

// pinned tells whether the delete is for one state of the pod only.
func pinned(how *metav1.DeleteOptions) bool {
	return how.Preconditions != nil && how.Preconditions.ResourceVersion != nil
}

// pin limits the delete to this state of the pod. A resource version of the
// client stays: it may mean an older state.
func pin(how *metav1.DeleteOptions, resourceVersion string) *metav1.DeleteOptions {
	if pinned(how) {
		return how
	}
	how = how.DeepCopy()
	if how.Preconditions == nil {
		how.Preconditions = &metav1.Preconditions{}
	}
	how.Preconditions.ResourceVersion = &resourceVersion
	return how
}

// delete sets the condition DisruptionTarget of the pod, for watchers, and deletes the pod.
func (e podEviction) delete(ctx context.Context, name string, how *metav1.DeleteOptions) error {
	if !dryrun.IsDryRun(how.DryRun) {
		pod, err := e.pods.change(ctx, name, nil, false, func(p *corev1.Pod) error {
			if err := checkPreconditions(p, how.Preconditions); err != nil {
				return err
			}
			setCondition(p, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			})
			return nil
		})
		if err != nil {
			return err
		}
		if pinned(how) {
			how = how.DeepCopy()
			how.Preconditions.ResourceVersion = &pod.ResourceVersion
		}
	}
	_, _, err := e.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, how)
	return err
}

// checkPreconditions is for the change before the delete, which checks them too.
func checkPreconditions(p *corev1.Pod, pre *metav1.Preconditions) error {
	if pre == nil {
		return nil
	}
	wrong := func(what, want, is, perhaps string) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, p.Name, fmt.Errorf(
			"the %s in the precondition (%s) does not match the %s in record (%s). The object might have been %s",
			what, want, what, is, perhaps))
	}
	if uid := value(pre.UID); uid != "" && uid != p.UID {
		return wrong("UID", string(uid), string(p.UID), "deleted and then recreated")
	}
	if rv := value(pre.ResourceVersion); rv != "" && rv != p.ResourceVersion {
		return wrong("ResourceVersion", rv, p.ResourceVersion, "modified")
	}
	return nil
}
