package kube

import (
	"context"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func deviceTaintRules() *apis.Definition {
	return apis.Resource[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleList]("devicetaintrules",
		apis.ClusterScoped(), apis.Status(),
		apis.Default(func(r *resourcev1.DeviceTaintRule) { defaultTaint(&r.Spec.Taint) }),
		apis.PrepareForUpdate(func(_ context.Context, r, old *resourcev1.DeviceTaintRule) {
			renewTaint(&r.Spec.Taint, &old.Spec.Taint)
		}),
		apis.Validate(validateTaintRule),
		table(func(r *resourcev1.DeviceTaintRule) []any {
			taint := r.Spec.Taint
			return []any{taint.Key, taint.Value, string(taint.Effect), since(taint.TimeAdded, "")}
		}, "Key", "Value", "Effect", "TimeAdded"),
	)
}

// defaultTaint sets the time of a taint to now.
func defaultTaint(t *resourcev1.DeviceTaint) {
	if t.TimeAdded == nil {
		t.TimeAdded = secondsNow()
	}
}

// renewTaint sets the time to now when the effect changes, unless the client
// sets it: tolerations count from it.
func renewTaint(t, old *resourcev1.DeviceTaint) {
	if t.Effect != old.Effect && t.TimeAdded.Equal(old.TimeAdded) {
		t.TimeAdded = secondsNow()
	}
}

// secondsNow is the time as clients will read it: JSON has whole seconds.
func secondsNow() *metav1.Time { return new(metav1.NewTime(time.Now().Truncate(time.Second))) }

// validateTaintRule checks what the type does not declare.
func validateTaintRule(_ context.Context, r *resourcev1.DeviceTaintRule) field.ErrorList {
	spec, conditions, taint := field.NewPath("spec"), field.NewPath("status", "conditions"), r.Spec.Taint
	errs := validateTaintSelector(r.Spec.DeviceSelector, spec.Child("deviceSelector"))
	errs = append(errs, metavalidation.ValidateLabelName(taint.Key, spec.Child("taint", "key"))...)
	errs = append(errs, check.Messages(spec.Child("taint", "value"), taint.Value, validation.IsValidLabelValue(taint.Value))...)
	if n := len(r.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		errs = append(errs, field.TooMany(conditions, n, resourcev1.DeviceTaintRuleStatusMaxConditions))
	}
	return append(errs, metavalidation.ValidateConditions(r.Status.Conditions, conditions)...)
}

func validateTaintSelector(s *resourcev1.DeviceTaintSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Driver != nil {
		errs = append(errs, subdomains(path.Child("driver"), resourcev1.DriverNameMaxLength, *s.Driver, strings.ToLower(*s.Driver))...)
	}
	if s.Pool != nil {
		errs = append(errs, subdomains(path.Child("pool"), resourcev1.PoolNameMaxLength, *s.Pool, strings.Split(*s.Pool, "/")...)...)
	}
	if s.Device != nil {
		errs = append(errs, check.Messages(path.Child("device"), *s.Device, validation.IsDNS1123Label(*s.Device))...)
	}
	return errs
}

// subdomains checks a name that must not be empty or too long, and whose parts
// are DNS-1123 subdomains.
func subdomains(path *field.Path, longest int, name string, parts ...string) field.ErrorList {
	errs := check.Required(path, name)
	if len(errs) > 0 {
		return errs
	}
	if len(name) > longest {
		errs = append(errs, field.TooLong(path, name, longest))
	}
	for _, part := range parts {
		errs = append(errs, check.Messages(path, name, validation.IsDNS1123Subdomain(part))...)
	}
	return errs
}
