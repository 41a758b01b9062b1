package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func notNegative[N int32 | int64](path *field.Path, n N) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(int64(n), path)
}

// optionalNotNegative are the errors of numbers that may be left out.
func optionalNotNegative(path *field.Path, numbers map[string]*int32) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		errs = append(errs, notNegative(path.Child(name), value(numbers[name]))...)
	}
	return errs
}

func immutable[T any](path *field.Path, is, was T) field.ErrorList {
	return apivalidation.ValidateImmutableField(is, was, path)
}

// constant is the option for a field that never changes, "spec.selector".
func constant[T any](name string, get func(*T) any) apis.Option {
	return apis.ValidateUpdate(func(_ context.Context, obj, old *T) field.ErrorList {
		return immutable(field.NewPath(name), get(obj), get(old))
	})
}

// validateWorkload checks what all workloads have in common: a selector that
// matches the template, whose pods are to run forever.
func validateWorkload(kind string, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) field.ErrorList {
	spec := field.NewPath("spec")
	path := spec.Child("selector")
	if selector == nil {
		return append(field.ErrorList{field.Required(path, "")}, validatePodTemplate(template, spec.Child("template"))...)
	}
	errs := check.Selector(path, selector)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, selector, "empty selector is invalid for "+kind))
	}
	return append(errs, validateTemplate(template, selector, spec.Child("template"))...)
}

// validateTemplate checks the template of a workload that runs forever.
func validateTemplate(t *corev1.PodTemplateSpec, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s, err := metav1.LabelSelectorAsSelector(selector); err == nil && !s.Empty() && !s.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), t.Labels,
			"`selector` does not match template `labels`"))
	}
	errs = append(errs, validatePodTemplate(t, path)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"),
			"activeDeadlineSeconds in ReplicaSet is not Supported"))
	}
	return errs
}

func validatePodTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	return append(errs, validatePodSpec(&t.Spec, path.Child("spec"))...)
}

// validatePodSpec checks the containers of a pod and how they refer to volumes.
func validatePodSpec(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	volumes := map[string]bool{}
	for i, v := range s.Volumes {
		at := path.Child("volumes").Index(i).Child("name")
		errs = append(errs, uniqueLabel(v.Name, volumes, at)...)
	}
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	names := map[string]bool{}
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"containers", s.Containers}, {"initContainers", s.InitContainers}} {
		for i := range list.containers {
			errs = append(errs, validateContainer(&list.containers[i], names, volumes, path.Child(list.name).Index(i))...)
		}
	}
	errs = append(errs, check.OneOf(path.Child("restartPolicy"), s.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, check.OneOf(path.Child("dnsPolicy"), s.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	if d := s.ActiveDeadlineSeconds; d != nil && *d < 1 {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, "must be between 1 and 2147483647, inclusive"))
	}
	return errs
}

func validateContainer(c *corev1.Container, names, volumes map[string]bool, path *field.Path) field.ErrorList {
	errs := uniqueLabel(c.Name, names, path.Child("name"))
	if c.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	} else if c.Image != strings.TrimSpace(c.Image) {
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, check.OneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy,
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	for i, p := range c.Ports {
		at, port := path.Child("ports").Index(i), p.ContainerPort
		if port == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, check.Messages(at.Child("containerPort"), port, validation.IsValidPortNum(int(port)))...)
		}
		errs = append(errs, check.OneOf(at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	for i, e := range c.Env {
		errs = append(errs, check.Required(path.Child("env").Index(i).Child("name"), e.Name)...)
	}
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		errs = append(errs, check.Required(at.Child("name"), m.Name)...)
		if m.Name != "" && !volumes[m.Name] {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		errs = append(errs, check.Required(at.Child("mountPath"), m.MountPath)...)
	}
	return errs
}

// uniqueLabel checks a name among its siblings and adds it to them.
func uniqueLabel(name string, taken map[string]bool, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := check.Messages(path, name, validation.IsDNS1123Label(name))
	if taken[name] {
		errs = append(errs, field.Duplicate(path, name))
	}
	taken[name] = true
	return errs
}

// checkIntOrPercent checks a number or a percentage that must not be negative.
func checkIntOrPercent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return notNegative(path, v.IntVal)
	}
	return check.Messages(path, v.StrVal, validation.IsValidPercent(v.StrVal))
}

// ratio is a cell such as 1/2.
func ratio(n, of int32) string { return fmt.Sprintf("%d/%d", n, of) }
