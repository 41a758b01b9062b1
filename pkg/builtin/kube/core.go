package kube

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/sailplane-dev/sailplane/pkg/apis"
)

func core() apiGroup {
	return apiGroup{corev1.SchemeGroupVersion, coreDefinitions, coreKinds, extendPods, []func() *apis.Definition{
		func() *apis.Definition { return pods() }, podTemplates, replicationControllers, nodes, persistentVolumes, persistentVolumeClaims,
	}}
}

// pods are with what the options add.
func pods(options ...apis.Option) *apis.Definition {
	return apis.Resource[corev1.Pod, corev1.PodList]("pods", append([]apis.Option{
		apis.ShortNames("po"), apis.Categories("all"), apis.StatusAndMetadata("ownerReferences", "deletionTimestamp"),
		apis.Default(defaultPod),
		gated[corev1.Pod](podGates()),
		apis.PrepareForCreate(func(_ context.Context, p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qualityOfService(&p.Spec)}
		}),
		apis.Validate(validatePod), apis.ValidateUpdate(validatePodUpdate),
		apis.SelectableFields(podFields()),
		apis.Subresource("binding", newPodBinding),
		apis.Store(func(s *registry.Store) { s.DeleteStrategy = gracefulPods{s.DeleteStrategy} }),
		table(podRow, "Ready", "Status", "Restarts", "", "IP", "Node", "Nominated Node", "Readiness Gates"),
	}, options...)...)
}

func podFields() map[string]func(*corev1.Pod) string {
	return map[string]func(*corev1.Pod) string{
		"spec.nodeName":            func(p *corev1.Pod) string { return p.Spec.NodeName },
		"spec.restartPolicy":       func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) },
		"spec.schedulerName":       func(p *corev1.Pod) string { return p.Spec.SchedulerName },
		"spec.serviceAccountName":  func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
		"spec.hostNetwork":         func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) },
		"status.phase":             func(p *corev1.Pod) string { return string(p.Status.Phase) },
		"status.podIP":             podIP,
		"status.podIPs":            podIP,
		"status.nominatedNodeName": func(p *corev1.Pod) string { return p.Status.NominatedNodeName },
	}
}

func podTemplates() *apis.Definition {
	return apis.Resource[corev1.PodTemplate, corev1.PodTemplateList]("podtemplates",
		apis.Default(func(t *corev1.PodTemplate) { defaultPodSpec(&t.Template.Spec) }),
		gated[corev1.PodTemplate](podSpecGates()),
		apis.Validate(func(_ context.Context, t *corev1.PodTemplate) field.ErrorList {
			return validatePodTemplate(&t.Template, field.NewPath("template"))
		}),
		table(func(t *corev1.PodTemplate) []any {
			names, images := containers(t.Template.Spec)
			return []any{names, images, labels.FormatLabels(t.Template.Labels)}
		}, "Containers", "Images", "Pod Labels"),
		ageAt(4, -1),
	)
}

func replicationControllers() *apis.Definition {
	return apis.Resource[corev1.ReplicationController, corev1.ReplicationControllerList]("replicationcontrollers",
		apis.ShortNames("rc"), apis.Categories("all"), apis.StatusAndMetadata(),
		apis.Default(defaultController),
		gated[corev1.ReplicationController](podSpecGates()),
		apis.Scale(func(c *corev1.ReplicationController) (*int32, int32, string) {
			return c.Spec.Replicas, c.Status.Replicas, labels.SelectorFromSet(c.Spec.Selector).String()
		}, func(c *corev1.ReplicationController, n int32) { c.Spec.Replicas = &n }),
		apis.Validate(validateController),
		apis.SelectableFields(map[string]func(*corev1.ReplicationController) string{
			"status.replicas": func(c *corev1.ReplicationController) string { return strconv.Itoa(int(c.Status.Replicas)) },
		}),
		orphans(),
		table(func(c *corev1.ReplicationController) []any {
			names, images := containers(value(c.Spec.Template).Spec)
			return []any{
				value(c.Spec.Replicas), c.Status.Replicas, c.Status.ReadyReplicas,
				names, images, labels.FormatLabels(c.Spec.Selector),
			}
		}, "Desired#", "Current#", "Ready#", "", "Containers", "Images", "Selector"),
	)
}

func validateController(_ context.Context, c *corev1.ReplicationController) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if len(c.Spec.Selector) == 0 {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	if c.Spec.Template == nil {
		return append(errs, field.Required(spec.Child("template"), ""))
	}
	return append(errs, validateTemplate(c.Spec.Template, &metav1.LabelSelector{MatchLabels: c.Spec.Selector}, spec.Child("template"))...)
}

func nodes() *apis.Definition {
	return apis.Resource[corev1.Node, corev1.NodeList]("nodes",
		apis.ClusterScoped(), apis.ShortNames("no"), apis.StatusAndMetadata(), apis.NoGeneration(),
		apis.RuleOptions(map[string]bool{"InPlacePodVerticalScalingSchedulerPreemption": false}),
		apis.Default(defaultNode),
		gated[corev1.Node](nodeGates()),
		apis.ValidateUpdate(func(_ context.Context, n, old *corev1.Node) field.ErrorList {
			if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
				return field.ErrorList{field.Forbidden(field.NewPath("spec", "providerID"),
					"node updates may not change providerID except from \"\" to valid")}
			}
			return nil
		}),
		apis.SelectableFields(map[string]func(*corev1.Node) string{
			"spec.unschedulable": func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) },
		}),
		apis.Store(func(s *registry.Store) { s.CreateStrategy = nodesWithStatus{s.CreateStrategy} }),
		table(nodeRow, "Status", "Roles", "Version",
			"", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
		ageAt(4, 3),
	)
}

func persistentVolumes() *apis.Definition {
	return apis.Resource[corev1.PersistentVolume, corev1.PersistentVolumeList]("persistentvolumes",
		apis.ClusterScoped(), apis.ShortNames("pv"), apis.StatusAndMetadata(), apis.NoGeneration(),
		apis.Default(defaultVolumeObject),
		apis.PrepareForCreate(func(_ context.Context, v *corev1.PersistentVolume) {
			now := metav1.Now()
			v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
		}),
		apis.Validate(validateVolume), apis.ValidateUpdate(validateVolumeUpdate),
		table(volumeRow, "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
			"VolumeAttributesClass", "Reason", "", "VolumeMode"),
	)
}

func persistentVolumeClaims() *apis.Definition {
	return apis.Resource[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList]("persistentvolumeclaims",
		apis.ShortNames("pvc"), apis.StatusAndMetadata(), apis.NoGeneration(),
		apis.Default(defaultClaim),
		gated[corev1.PersistentVolumeClaim](volumeClaimGates()),
		apis.PrepareForCreate(func(_ context.Context, c *corev1.PersistentVolumeClaim) {
			c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		}),
		apis.Validate(validateClaim), apis.ValidateUpdate(validateClaimUpdate),
		table(claimRow, "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "", "VolumeMode"),
	)
}
