package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/apis"
)

// gracefulPods gives a pod that runs on a node time to end: the delete marks
// it, and its agent deletes it again with a grace period of 0.
type gracefulPods struct{ rest.RESTDeleteStrategy }

var _ rest.RESTGracefulDeleteStrategy = gracefulPods{}

func (gracefulPods) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	pod, ok := obj.(*corev1.Pod)
	if !ok || options == nil {
		return false
	}
	seconds := ptr.Deref(options.GracePeriodSeconds, value(pod.Spec.TerminationGracePeriodSeconds))
	if seconds < 0 {
		seconds = 1
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		seconds = 0
	}
	options.GracePeriodSeconds = &seconds
	return true
}

// orphans makes a delete without a policy orphan the dependents, as Kubernetes
// does for its oldest workloads.
func orphans() apis.Option {
	return apis.Store(func(s *registry.Store) { s.DeleteStrategy = orphaning{s.DeleteStrategy} })
}

type orphaning struct{ rest.RESTDeleteStrategy }

var _ rest.GarbageCollectionDeleteStrategy = orphaning{}

func (orphaning) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.OrphanDependents
}

// qualityOfService is the class of a pod by the requests and limits of its containers:
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func qualityOfService(s *corev1.PodSpec) corev1.PodQOSClass {
	some, all := false, true
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for _, c := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
				some = some || !limit.IsZero() || !request.IsZero()
				all = all && !limit.IsZero() && limit.Cmp(request) == 0
			}
		}
	}
	switch {
	case !some:
		return corev1.PodQOSBestEffort
	case all:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func validatePod(_ context.Context, p *corev1.Pod) field.ErrorList {
	return validatePodSpec(&p.Spec, field.NewPath("spec"))
}

const podUpdates = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`," +
	"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

func validatePodUpdate(_ context.Context, p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	if len(p.Spec.Containers) != len(old.Spec.Containers) || len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return field.ErrorList{field.Forbidden(path.Child("containers"), "pod updates may not add or remove containers")}
	}
	var errs field.ErrorList
	was, is := old.Spec.DeepCopy(), p.Spec.DeepCopy()
	for i := range is.Containers {
		is.Containers[i].Image = was.Containers[i].Image
	}
	for i := range is.InitContainers {
		is.InitContainers[i].Image = was.InitContainers[i].Image
	}
	is.ActiveDeadlineSeconds = was.ActiveDeadlineSeconds
	for _, t := range was.Tolerations {
		if !slices.ContainsFunc(is.Tolerations, func(have corev1.Toleration) bool { return have.MatchToleration(&t) }) {
			errs = append(errs, field.Forbidden(path.Child("tolerations"),
				"existing toleration can not be modified except its tolerationSeconds"))
			break
		}
	}
	is.Tolerations = was.Tolerations
	if value(was.TerminationGracePeriodSeconds) < 0 && value(is.TerminationGracePeriodSeconds) == 1 {
		is.TerminationGracePeriodSeconds = was.TerminationGracePeriodSeconds
	}
	for _, gate := range is.SchedulingGates {
		if !slices.Contains(was.SchedulingGates, gate) {
			errs = append(errs, field.Forbidden(path.Child("schedulingGates"), "only deletion is allowed"))
			break
		}
	}
	if len(was.SchedulingGates) > 0 {
		// The placement of a gated pod may still be narrowed.
		is.NodeSelector, is.Affinity = was.NodeSelector, was.Affinity
	}
	is.SchedulingGates = was.SchedulingGates
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(path, podUpdates))
	}
	return errs
}

func podIP(p *corev1.Pod) string {
	if len(p.Status.PodIPs) > 0 {
		return p.Status.PodIPs[0].IP
	}
	return p.Status.PodIP
}

func podRow(p *corev1.Pod) []any {
	state := stateOf(p)
	gates := none
	if n := len(p.Spec.ReadinessGates); n > 0 {
		met := 0
		for _, gate := range p.Spec.ReadinessGates {
			if hasCondition(p, gate.ConditionType) {
				met++
			}
		}
		gates = fmt.Sprintf("%d/%d", met, n)
	}
	return []any{
		fmt.Sprintf("%d/%d", state.ready, state.total), state.status, state.restarts.String(),
		orNone(podIP(p)), orNone(p.Spec.NodeName), orNone(p.Status.NominatedNodeName), gates,
	}
}
