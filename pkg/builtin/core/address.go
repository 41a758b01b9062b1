package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// validateIP checks an address as Kubernetes does since 1.36: no leading zeros
// and no IPv4 address inside an IPv6 one (KEP-4858).
func validateIP(ip string, path *field.Path) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, ip, true, nil)
}

// validateClusterIPs checks clusterIP, clusterIPs and the families together.
func validateClusterIPs(s *corev1.Service, spec *field.Path) field.ErrorList {
	path, ips := spec.Child("clusterIPs"), s.Spec.ClusterIPs
	var errs field.ErrorList
	switch {
	case s.Spec.ClusterIP == "" && len(ips) > 0:
		errs = append(errs, field.Invalid(path, ips, "must be empty when `clusterIP` is not specified"))
	case s.Spec.ClusterIP != "" && len(ips) == 0:
		errs = append(errs, field.Required(path, ""))
	case len(ips) > 0 && ips[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(path, ips, "first value must match `clusterIP`"))
	}
	errs = append(errs, validateFamilies(s, spec)...)
	valid := true
	for i, ip := range ips {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				valid = false
				errs = append(errs, field.Invalid(path, ips, "'None' must be the first and only value"))
			}
			continue
		}
		problems := validateIP(ip, path.Index(i))
		valid = valid && len(problems) == 0
		errs = append(errs, problems...)
	}
	if len(ips) > 2 {
		errs = append(errs, field.Invalid(path, ips, "may only hold up to 2 values"))
	}
	// The checks below would only confuse if an address is invalid.
	if valid && len(ips) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(ips); err != nil || !dual {
			errs = append(errs, field.Invalid(path, ips, "may specify no more than one IP for each IP family"))
		}
	}
	if valid && !isHeadless(s) {
		errs = append(errs, validateFamilyOfIPs(s, path)...)
	}
	return errs
}

func validateFamilies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, family := range s.Spec.IPFamilies {
		path := spec.Child("ipFamilies").Index(i)
		errs = append(errs, check.OptionalOneOf(path, &family, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if slices.Contains(s.Spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(path, family))
		}
	}
	return append(errs, check.OptionalOneOf(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
		corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
}

func validateFamilyOfIPs(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range s.Spec.ClusterIPs {
		if i >= len(s.Spec.IPFamilies) {
			break
		}
		family := s.Spec.IPFamilies[i]
		if isV6 := netutils.IsIPv6String(ip); family == corev1.IPv4Protocol && isV6 || family == corev1.IPv6Protocol && !isV6 {
			errs = append(errs, field.Invalid(path.Index(i), ip,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", family, i)))
		}
	}
	return errs
}

// serviceWarnings warns of fields that are out of date or have no effect.
func serviceWarnings(_ context.Context, s *corev1.Service) []string {
	spec, path := &s.Spec, field.NewPath("spec")
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	var all []string
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		all = append(all, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			all = append(all, validation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	if headless {
		all = append(all, headlessWarnings(spec)...)
	}
	for i, ip := range spec.ExternalIPs {
		all = append(all, validation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	if len(spec.ExternalIPs) > 0 && !headless && hasClusterIP(s) {
		all = append(all, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	// The field is not validated.
	if netutils.ParseIPSloppy(spec.LoadBalancerIP) != nil {
		all = append(all, validation.GetWarningsForIP(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		if _, _, err := netutils.ParseCIDRSloppy(cidr); err == nil {
			all = append(all, validation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
		}
	}
	if len(spec.ExternalIPs) > 0 && !hasClusterIP(s) {
		all = append(all, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q", corev1.ServiceTypeExternalName))
	}
	if spec.ExternalName != "" && hasClusterIP(s) {
		all = append(all, fmt.Sprintf("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName))
	}
	if ptr.Deref(spec.TrafficDistribution, "") == corev1.ServiceTrafficDistributionPreferClose {
		all = append(all, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q",
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return all
}

func headlessWarnings(spec *corev1.ServiceSpec) []string {
	var all []string
	if spec.LoadBalancerIP != "" {
		all = append(all, "spec.loadBalancerIP is ignored for headless services")
	}
	if len(spec.ExternalIPs) > 0 {
		all = append(all, "spec.externalIPs is ignored for headless services")
	}
	if spec.SessionAffinity != corev1.ServiceAffinityNone {
		all = append(all, "spec.SessionAffinity is ignored for headless services")
	}
	return all
}
