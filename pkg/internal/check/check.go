// Package check has the checks of single values that several API groups share in
// their validation. Messages are those of Kubernetes.
package check

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Messages makes an error of each message about a value, as the functions of
// k8s.io/apimachinery/pkg/util/validation return them.
func Messages(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// Required checks that a text is not empty.
func Required(path *field.Path, text string) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// OneOf checks for one of the supported values; an empty value is an error of its
// own.
func OneOf[T ~string](path *field.Path, value T, supported ...T) field.ErrorList {
	if value == "" && !slices.Contains(supported, "") {
		return field.ErrorList{field.Required(path, "")}
	}
	return OptionalOneOf(path, &value, supported...)
}

// OptionalOneOf checks for one of the supported values, or none.
func OptionalOneOf[T ~string](path *field.Path, value *T, supported ...T) field.ErrorList {
	if value == nil || slices.Contains(supported, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, supported)}
}

// Selector checks that a selector can be evaluated, if there is one.
func Selector(path *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// Reachable refuses addresses that mean another machine to each reader, or all
// machines of a network.
func Reachable(path *field.Path, address string) field.ErrorList {
	ip := netutils.ParseIPSloppy(address)
	var text string
	switch {
	case ip == nil:
		text = "must be a valid IP address"
	case ip.IsUnspecified():
		text = "may not be unspecified (" + address + ")"
	case ip.IsLoopback():
		text = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case ip.IsLinkLocalUnicast():
		text = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case ip.IsLinkLocalMulticast():
		text = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(path, address, text)}
}
