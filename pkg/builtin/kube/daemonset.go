package kube

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func daemonSets() *apis.Definition {
	return apis.Resource[appsv1.DaemonSet, appsv1.DaemonSetList]("daemonsets",
		apis.ShortNames("ds"), apis.Categories("all"), apis.StatusAndMetadata(),
		apis.Default(defaultDaemonSet),
		gated[appsv1.DaemonSet](podSpecGates()),
		apis.Validate(validateDaemonSet),
		constant("spec.selector", func(d *appsv1.DaemonSet) any { return d.Spec.Selector }),
		table(func(d *appsv1.DaemonSet) []any {
			names, images := containers(d.Spec.Template.Spec)
			return []any{
				d.Status.DesiredNumberScheduled, d.Status.CurrentNumberScheduled, d.Status.NumberReady,
				d.Status.UpdatedNumberScheduled, d.Status.NumberAvailable, labels.FormatLabels(d.Spec.Template.Spec.NodeSelector),
				names, images, metav1.FormatLabelSelector(d.Spec.Selector),
			}
		}, "Desired#", "Current#", "Ready#", "Up-to-date#", "Available#", "Node Selector", "", "Containers", "Images", "Selector"),
	)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	set(&d.Spec.RevisionHistoryLimit, 10)
	fill(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		set(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		set(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		set(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaultPodSpec(&d.Spec.Template.Spec)
}

func validateDaemonSet(_ context.Context, d *appsv1.DaemonSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := optionalNotNegative(spec, map[string]*int32{
		"minReadySeconds": &d.Spec.MinReadySeconds, "revisionHistoryLimit": d.Spec.RevisionHistoryLimit,
	})
	errs = append(errs, validateWorkload("daemonset", d.Spec.Selector, &d.Spec.Template)...)
	path := spec.Child("updateStrategy")
	errs = append(errs, check.OneOf(path.Child("type"), d.Spec.UpdateStrategy.Type,
		appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)...)
	if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		errs = append(errs, checkIntOrPercent(rolling.MaxUnavailable, path.Child("rollingUpdate", "maxUnavailable"))...)
		errs = append(errs, checkIntOrPercent(rolling.MaxSurge, path.Child("rollingUpdate", "maxSurge"))...)
	}
	return errs
}

func controllerRevisions() *apis.Definition {
	return apis.Resource[appsv1.ControllerRevision, appsv1.ControllerRevisionList]("controllerrevisions",
		apis.NoGeneration(),
		apis.Validate(func(_ context.Context, r *appsv1.ControllerRevision) field.ErrorList {
			errs := notNegative(field.NewPath("revision"), r.Revision)
			if r.Data.Raw == nil && r.Data.Object == nil {
				errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
			}
			return errs
		}),
		apis.ValidateUpdate(func(_ context.Context, r, old *appsv1.ControllerRevision) field.ErrorList {
			if equality.Semantic.DeepEqual(r.Data, old.Data) {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("data"), r.Data, "field is immutable")}
		}),
		table(func(r *appsv1.ControllerRevision) []any {
			controller := none
			if owner := metav1.GetControllerOf(r); owner != nil {
				gv, err := schema.ParseGroupVersion(owner.APIVersion)
				if err == nil {
					controller = fmt.Sprintf("%s/%s", gv.WithKind(owner.Kind).GroupKind(), owner.Name)
				}
			}
			return []any{controller, r.Revision}
		}, "Controller", "Revision#"),
	)
}
