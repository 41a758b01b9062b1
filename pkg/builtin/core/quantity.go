package core

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// hugePagesQuotaPrefix begins the names by which a quota counts huge pages.
const hugePagesQuotaPrefix = corev1.DefaultResourceRequestsPrefix + corev1.ResourceHugePagesPrefix

// roundQuantities rounds up to a thousandth, the finest that Kubernetes stores.
func roundQuantities(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(apiresource.Milli)
		list[name] = quantity
	}
}

// names returns the resources of a list, sorted.
func names(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

// validateResourceName checks the name of anything that is counted or limited.
func validateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := validateQualifiedName(string(name), path); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(string(name), "/") && name != corev1.ResourceStorage && !isQuotaResource(name) {
		return field.ErrorList{field.Invalid(path, name, "must be a standard resource type or fully qualified")}
	}
	return nil
}

// validateContainerResourceName checks the name of a resource that a container can request.
func validateContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := validateResourceName(name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if !isContainerResource(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !isNative(name) && !isExtended(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// validateQuotaQuantities checks the names and amounts of a quota.
func validateQuotaQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range names(list) {
		at, quantity := path.Key(string(name)), list[name]
		errs = append(errs, validateResourceName(name, at)...)
		if !strings.Contains(string(name), "/") && !isQuotaResource(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		if quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), apivalidation.IsNegativeErrorMsg))
		}
		if (isCount(name) || isExtended(name)) && quantity.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, quantity, "must be an integer"))
		}
	}
	return errs
}

// isQuotaResource tells whether Kubernetes knows how to count the resource.
func isQuotaResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage,
		corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return isCount(name) || isHugePages(name) || strings.HasPrefix(string(name), hugePagesQuotaPrefix)
}

// isCount tells whether the resource is a number of objects.
func isCount(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

func isContainerResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return isHugePages(name)
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNative tells whether the resource is one of Kubernetes' own.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtended tells whether the resource is not one of Kubernetes, and its name
// is still valid with the prefix of a quota.
func isExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}
