package kube

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func apps() apiGroup {
	return apiGroup{appsv1.SchemeGroupVersion, appsDefinitions, nil, nil, []func() *apis.Definition{
		deployments, replicaSets, statefulSets, daemonSets, controllerRevisions,
	}}
}

func deployments() *apis.Definition {
	return apis.Resource[appsv1.Deployment, appsv1.DeploymentList]("deployments",
		apis.ShortNames("deploy"), apis.Categories("all"), apis.StatusAndMetadata("labels"),
		apis.Scale(func(d *appsv1.Deployment) (*int32, int32, string) {
			return d.Spec.Replicas, d.Status.Replicas, selectorText(d.Spec.Selector)
		}, func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n }),
		apis.Default(defaultDeployment),
		gated[appsv1.Deployment](podSpecGates()),
		apis.Validate(validateDeployment),
		constant("spec.selector", func(d *appsv1.Deployment) any { return d.Spec.Selector }),
		table(func(d *appsv1.Deployment) []any {
			names, images := containers(d.Spec.Template.Spec)
			return []any{
				ratio(d.Status.ReadyReplicas, value(d.Spec.Replicas)), d.Status.UpdatedReplicas, d.Status.AvailableReplicas,
				names, images, metav1.FormatLabelSelector(d.Spec.Selector),
			}
		}, "Ready", "Up-to-date", "Available", "", "Containers", "Images", "Selector"),
	)
}

func defaultDeployment(d *appsv1.Deployment) {
	set(&d.Spec.Replicas, 1)
	set(&d.Spec.RevisionHistoryLimit, 10)
	set(&d.Spec.ProgressDeadlineSeconds, 600)
	strategy := &d.Spec.Strategy
	fill(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		set(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		set(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		set(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	defaultPodSpec(&d.Spec.Template.Spec)
}

func validateDeployment(_ context.Context, d *appsv1.Deployment) field.ErrorList {
	spec := field.NewPath("spec")
	errs := optionalNotNegative(spec, map[string]*int32{
		"replicas": d.Spec.Replicas, "minReadySeconds": &d.Spec.MinReadySeconds,
		"revisionHistoryLimit": d.Spec.RevisionHistoryLimit, "progressDeadlineSeconds": d.Spec.ProgressDeadlineSeconds,
	})
	errs = append(errs, validateWorkload("deployment", d.Spec.Selector, &d.Spec.Template)...)
	if limit := d.Spec.ProgressDeadlineSeconds; limit != nil && *limit <= d.Spec.MinReadySeconds {
		errs = append(errs, field.Invalid(spec.Child("progressDeadlineSeconds"), *limit, "must be greater than minReadySeconds"))
	}
	strategy, path := d.Spec.Strategy, spec.Child("strategy")
	errs = append(errs, check.OneOf(path.Child("type"), strategy.Type,
		appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType)...)
	rolling, at := strategy.RollingUpdate, path.Child("rollingUpdate")
	if rolling == nil {
		return errs
	}
	if strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return append(errs, field.Forbidden(at, "may not be specified when strategy `type` is 'Recreate'"))
	}
	errs = append(errs, checkIntOrPercent(rolling.MaxUnavailable, at.Child("maxUnavailable"))...)
	errs = append(errs, checkIntOrPercent(rolling.MaxSurge, at.Child("maxSurge"))...)
	if isZero(rolling.MaxUnavailable) && isZero(rolling.MaxSurge) {
		errs = append(errs, field.Invalid(at.Child("maxUnavailable"), rolling.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return errs
}

func isZero(v *intstr.IntOrString) bool {
	return v != nil && (v.Type == intstr.Int && v.IntVal == 0 || v.Type == intstr.String && v.StrVal == "0%")
}

func replicaSets() *apis.Definition {
	return apis.Resource[appsv1.ReplicaSet, appsv1.ReplicaSetList]("replicasets",
		apis.ShortNames("rs"), apis.Categories("all"), apis.StatusAndMetadata(),
		apis.Scale(func(r *appsv1.ReplicaSet) (*int32, int32, string) {
			return r.Spec.Replicas, r.Status.Replicas, selectorText(r.Spec.Selector)
		}, func(r *appsv1.ReplicaSet, n int32) { r.Spec.Replicas = &n }),
		apis.Default(func(r *appsv1.ReplicaSet) {
			set(&r.Spec.Replicas, 1)
			defaultPodSpec(&r.Spec.Template.Spec)
		}),
		gated[appsv1.ReplicaSet](podSpecGates()),
		apis.Validate(func(_ context.Context, r *appsv1.ReplicaSet) field.ErrorList {
			return append(optionalNotNegative(field.NewPath("spec"), map[string]*int32{
				"replicas": r.Spec.Replicas, "minReadySeconds": &r.Spec.MinReadySeconds,
			}), validateWorkload("replicaset", r.Spec.Selector, &r.Spec.Template)...)
		}),
		constant("spec.selector", func(r *appsv1.ReplicaSet) any { return r.Spec.Selector }),
		apis.SelectableFields(map[string]func(*appsv1.ReplicaSet) string{
			"status.replicas": func(r *appsv1.ReplicaSet) string { return strconv.Itoa(int(r.Status.Replicas)) },
		}),
		table(func(r *appsv1.ReplicaSet) []any {
			names, images := containers(r.Spec.Template.Spec)
			return []any{
				value(r.Spec.Replicas), r.Status.Replicas, r.Status.ReadyReplicas,
				names, images, metav1.FormatLabelSelector(r.Spec.Selector),
			}
		}, "Desired#", "Current#", "Ready#", "", "Containers", "Images", "Selector"),
	)
}

func statefulSets() *apis.Definition {
	return apis.Resource[appsv1.StatefulSet, appsv1.StatefulSetList]("statefulsets",
		apis.ShortNames("sts"), apis.Categories("all"), apis.StatusAndMetadata(),
		gated[appsv1.StatefulSet](podSpecGates()),
		apis.Scale(func(s *appsv1.StatefulSet) (*int32, int32, string) {
			return s.Spec.Replicas, s.Status.Replicas, selectorText(s.Spec.Selector)
		}, func(s *appsv1.StatefulSet, n int32) { s.Spec.Replicas = &n }),
		apis.Default(defaultStatefulSet),
		apis.Validate(validateStatefulSet), apis.ValidateUpdate(validateStatefulSetUpdate),
		table(func(s *appsv1.StatefulSet) []any {
			names, images := containers(s.Spec.Template.Spec)
			return []any{ratio(s.Status.ReadyReplicas, value(s.Spec.Replicas)), names, images}
		}, "Ready", "", "Containers", "Images"),
	)
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	set(&spec.Replicas, 1)
	set(&spec.RevisionHistoryLimit, 10)
	fill(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	fill(&spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		set(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		set(&spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	set(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	fill(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	fill(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		defaultClaim(claim)
	}
	defaultPodSpec(&spec.Template.Spec)
}

func validateStatefulSet(_ context.Context, s *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := optionalNotNegative(spec, map[string]*int32{
		"replicas": s.Spec.Replicas, "minReadySeconds": &s.Spec.MinReadySeconds, "revisionHistoryLimit": s.Spec.RevisionHistoryLimit,
	})
	errs = append(errs, check.OneOf(spec.Child("podManagementPolicy"), s.Spec.PodManagementPolicy,
		appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
	errs = append(errs, check.OneOf(spec.Child("updateStrategy", "type"), s.Spec.UpdateStrategy.Type,
		appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)...)
	// Containers mount the claims as volumes.
	template := s.Spec.Template.DeepCopy()
	have := map[string]bool{}
	for _, v := range template.Spec.Volumes {
		have[v.Name] = true
	}
	for _, claim := range s.Spec.VolumeClaimTemplates {
		if !have[claim.Name] && claim.Name != "" {
			template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: claim.Name})
			have[claim.Name] = true
		}
	}
	return append(errs, validateWorkload("statefulset", s.Spec.Selector, template)...)
}

func validateStatefulSetUpdate(_ context.Context, s, old *appsv1.StatefulSet) field.ErrorList {
	is := s.Spec.DeepCopy()
	is.Replicas, is.Ordinals, is.Template = old.Spec.Replicas, old.Spec.Ordinals, old.Spec.Template
	is.UpdateStrategy, is.RevisionHistoryLimit = old.Spec.UpdateStrategy, old.Spec.RevisionHistoryLimit
	is.MinReadySeconds = old.Spec.MinReadySeconds
	is.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if equality.Semantic.DeepEqual(is, &old.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas', "+
		"'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "+
		"'minReadySeconds' are forbidden")}
}
