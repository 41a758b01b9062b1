package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// LimitRanges is the part that serves limitranges (v1). It only stores them:
// the part quota.LimitRanges applies them to pods and claims.
type LimitRanges struct{}

// Install adds limitranges to the core group.
func (LimitRanges) Install(p *controlplane.Plan) error { return shared().Serve(p, limitRanges()) }

func limitRanges() *apis.Definition {
	return apis.Resource[corev1.LimitRange, corev1.LimitRangeList]("limitranges",
		apis.ShortNames("limits"),
		apis.NoGeneration(),
		apis.CreateOnUpdate(),
		apis.Default(func(l *corev1.LimitRange) {
			for i := range l.Spec.Limits {
				defaultLimits(&l.Spec.Limits[i])
			}
		}),
		apis.PrepareForCreate(func(_ context.Context, l *corev1.LimitRange) {
			// The only kind that can be created without a name.
			if l.Name == "" {
				l.Name = string(uuid.NewUUID())
			}
		}),
		apis.Validate(validateLimitRange),
	)
}

// defaultLimits derives the missing defaults of a container from the bounds: the
// limit from the maximum, and the request from the limit, or else from the minimum.
func defaultLimits(l *corev1.LimitRangeItem) {
	for _, list := range []corev1.ResourceList{l.Max, l.Min, l.Default, l.DefaultRequest, l.MaxLimitRequestRatio} {
		roundQuantities(list)
	}
	if l.Type != corev1.LimitTypeContainer {
		return
	}
	l.Default = withDefaults(l.Default, l.Max)
	l.DefaultRequest = withDefaults(withDefaults(l.DefaultRequest, l.Default), l.Min)
}

// withDefaults adds the entries that a list lacks. The list is never nil afterwards.
func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	for name, quantity := range defaults {
		if _, ok := list[name]; !ok {
			list[name] = quantity.DeepCopy()
		}
	}
	return list
}

func validateLimitRange(_ context.Context, l *corev1.LimitRange) field.ErrorList {
	errs := validateMetaFinalizers(&l.ObjectMeta)
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, path := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, path.Child("type"))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(path.Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validateLimitNames(item, path)...)
		for _, name := range limited(item) {
			errs = append(errs, validateBounds(item, name, path)...)
			errs = append(errs, validateRatio(item, name, path)...)
		}
	}
	return errs
}

func validateLimitType(t corev1.LimitType, path *field.Path) field.ErrorList {
	if errs := validateQualifiedName(string(t), path); len(errs) > 0 || strings.Contains(string(t), "/") {
		return errs
	}
	switch t {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return nil
	}
	return field.ErrorList{field.Invalid(path, t, "must be a standard limit type or fully qualified")}
}

// validateLimitNames checks which resources are limited, and how.
func validateLimitNames(l *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	check := validateResourceName
	if l.Type == corev1.LimitTypePod || l.Type == corev1.LimitTypeContainer {
		check = validateContainerResourceName
	}
	var errs field.ErrorList
	validate := func(child string, list corev1.ResourceList) {
		for _, name := range names(list) {
			errs = append(errs, check(name, path.Child(child).Key(string(name)))...)
		}
	}
	validate("max", l.Max)
	validate("min", l.Min)
	if l.Type == corev1.LimitTypePod {
		const text = "may not be specified when `type` is 'Pod'"
		if len(l.Default) > 0 {
			errs = append(errs, field.Forbidden(path.Child("default"), text))
		}
		if len(l.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(path.Child("defaultRequest"), text))
		}
	} else {
		validate("default", l.Default)
		validate("defaultRequest", l.DefaultRequest)
	}
	if l.Type == corev1.LimitTypePersistentVolumeClaim {
		_, hasMin := l.Min[corev1.ResourceStorage]
		_, hasMax := l.Max[corev1.ResourceStorage]
		if !hasMin && !hasMax {
			errs = append(errs, field.Required(path.Child("limits"),
				"either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	validate("maxLimitRequestRatio", l.MaxLimitRequestRatio)
	return errs
}

// limited returns all resources that the item mentions.
func limited(l *corev1.LimitRangeItem) []corev1.ResourceName {
	all := corev1.ResourceList{}
	lists := []corev1.ResourceList{l.Max, l.Min, l.MaxLimitRequestRatio}
	if l.Type != corev1.LimitTypePod {
		lists = append(lists, l.Default, l.DefaultRequest)
	}
	for _, list := range lists {
		maps.Copy(all, list)
	}
	return names(all)
}

// bound is one quantity of a limit, with its names in errors.
type bound struct {
	field, text string
	quantity    apiresource.Quantity
	ok          bool
}

// validateBounds wants min <= defaultRequest <= default <= max.
func validateBounds(l *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) field.ErrorList {
	of := func(field, text string, list corev1.ResourceList) bound {
		quantity, ok := list[name]
		return bound{field, text, quantity, ok}
	}
	least, most := of("min", "min value", l.Min), of("max", "max value", l.Max)
	request, limit := of("defaultRequest", "default request value", l.DefaultRequest), of("default", "default value", l.Default)
	if l.Type == corev1.LimitTypePod {
		request.ok, limit.ok = false, false
	}
	limitOfRequest := limit
	limitOfRequest.text = "default limit value"
	var errs field.ErrorList
	// shown is the value in the error, and not always the wrong one: Kubernetes
	// is not consistent there.
	ordered := func(low, high bound, at string, shown apiresource.Quantity) {
		if low.ok && high.ok && low.quantity.Cmp(high.quantity) > 0 {
			errs = append(errs, field.Invalid(path.Child(at).Key(string(name)), shown, fmt.Sprintf("%s %s is greater than %s %s",
				low.text, low.quantity.String(), high.text, high.quantity.String())))
		}
	}
	ordered(least, most, least.field, least.quantity)
	ordered(least, request, request.field, request.quantity)
	ordered(request, most, request.field, request.quantity)
	ordered(request, limitOfRequest, request.field, request.quantity)
	ordered(least, limit, limit.field, least.quantity)
	ordered(limit, most, limit.field, most.quantity)
	return errs
}

// validateRatio checks how far a limit may exceed its request.
func validateRatio(l *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ratio, ok := l.MaxLimitRequestRatio[name]; ok {
		at := path.Child("maxLimitRequestRatio").Key(string(name))
		if ratio.Cmp(*apiresource.NewQuantity(1, apiresource.DecimalSI)) < 0 {
			errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String())))
		}
		least, hasMin := l.Min[name]
		most, hasMax := l.Max[name]
		if wanted, possible := ratios(ratio, least, most); hasMin && hasMax && wanted > possible {
			errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), possible)))
		}
	}
	limit, hasLimit := l.Default[name]
	request, hasRequest := l.DefaultRequest[name]
	overcommit := isNative(name) && !isHugePages(name)
	if l.Type != corev1.LimitTypePod && !overcommit && hasLimit && hasRequest && limit.Cmp(request) != 0 {
		errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(name)), request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
	}
	return errs
}

// ratios returns the ratio and max/min, computed in thousandths where those fit.
func ratios(ratio, least, most apiresource.Quantity) (wanted, possible float64) {
	whole := []int64{ratio.Value(), least.Value(), most.Value()}
	if slices.Max(whole) < apiresource.MaxMilliValue {
		return float64(ratio.MilliValue()) / 1000, float64(most.MilliValue()) / float64(least.MilliValue())
	}
	return float64(whole[0]), float64(whole[2]) / float64(whole[1])
}
