package core

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// reservedPriorities is where the priorities of responders begin that are not of
// Kubernetes itself.
const reservedPriorities = 1000

// reservedDomains are of Kubernetes' own responders.
func reservedDomains() []string { return []string{"k8s.io", "kubernetes.io"} }

// ValidateCustom_EvictionResponder_Name refuses names in Kubernetes' own domains
// (https://github.com/kubernetes/enhancements/issues/4563).
//
//nolint:revive // the generated code calls it by this name, with these parameters
func ValidateCustom_EvictionResponder_Name(
	_ context.Context, _ operation.Operation, path *field.Path, value, _ *string,
) field.ErrorList {
	if value == nil {
		return nil
	}
	domain, _, _ := strings.Cut(*value, "/")
	domain = strings.TrimRight(strings.TrimSpace(strings.ToLower(domain)), ".")
	if slices.ContainsFunc(reservedDomains(), func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }) {
		return field.ErrorList{field.Invalid(path, *value, "domain names *.k8s.io, *.kubernetes.io are reserved")}
	}
	return nil
}

// ValidateCustom_EvictionResponder_Priority refuses the priorities of Kubernetes'
// own responders, of which none are in a Pod.
//
//nolint:revive // the generated code calls it by this name, with these parameters
func ValidateCustom_EvictionResponder_Priority(
	_ context.Context, _ operation.Operation, path *field.Path, value, _ *int32,
) field.ErrorList {
	if value != nil && *value >= 0 && *value < reservedPriorities {
		return field.ErrorList{field.Invalid(path, *value, "priorities 0-999 are reserved for responders with *.k8s.io suffix")}
	}
	return nil
}
