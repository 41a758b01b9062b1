package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// podBinding is /binding, where schedulers say on which node a pod runs.
type podBinding struct{ pods podStore }

var (
	_ rest.NamedCreater                   = podBinding{}
	_ rest.SubresourceObjectMetaPreserver = podBinding{}
)

func newPodBinding(s *registry.Store) rest.Storage { return podBinding{podStore{s}} }

func (podBinding) New() runtime.Object { return &corev1.Binding{} }

// Destroy does nothing: the resource destroys the shared storage.
func (podBinding) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID and
// the resource version, which identify the pod that the scheduler has seen.
func (podBinding) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (b podBinding) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", obj))
	}
	if name != binding.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
	}
	if validate != nil {
		if err := validate(ctx, binding.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	pre := &apistorage.Preconditions{}
	if binding.UID != "" {
		pre.UID = &binding.UID
	}
	if binding.ResourceVersion != "" {
		pre.ResourceVersion = &binding.ResourceVersion
	}
	_, err := b.pods.change(ctx, name, pre, dryrun.IsDryRun(options.DryRun), func(p *corev1.Pod) error { return assign(p, binding) })
	if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
		err = apierrors.NewConflict(corev1.Resource("pods/binding"), name, err)
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, err
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	target := field.NewPath("target")
	if kind := b.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), kind, []string{"Node", "<empty>"}))
	}
	return append(errs, check.Required(target.Child("name"), b.Target.Name)...)
}

// assign gives a pod its node, once only. The annotations of the scheduler, and
// the topology of the node in labels, come with it.
func assign(p *corev1.Pod, b *corev1.Binding) error {
	switch {
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return fmt.Errorf("pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) != 0:
		return fmt.Errorf("pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName, p.Status.NominatedNodeName = b.Target.Name, ""
	p.Annotations, p.Labels = merged(p.Annotations, b.Annotations), merged(p.Labels, b.Labels)
	setCondition(p, corev1.PodCondition{Type: corev1.PodScheduled})
	return nil
}

func merged(have, more map[string]string) map[string]string {
	if have == nil {
		have = map[string]string{}
	}
	maps.Copy(have, more)
	return have
}

// bindings is the resource of old schedulers, which name the pod in the object.
type bindings struct{ pod podBinding }

var (
	_ rest.Creater              = bindings{}
	_ rest.Scoper               = bindings{}
	_ rest.SingularNameProvider = bindings{}
)

func (bindings) New() runtime.Object { return &corev1.Binding{} }

// Destroy does nothing: the resource destroys the shared storage.
func (bindings) Destroy() {}

func (bindings) NamespaceScoped() bool { return true }

func (bindings) GetSingularName() string { return "binding" }

func (b bindings) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", obj))
	}
	return b.pod.Create(ctx, binding.Name, obj, validate, options)
}
