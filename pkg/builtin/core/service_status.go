package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func validateServiceStatus(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "loadBalancer", "ingress")
	if !isLoadBalancer(s) {
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			errs = append(errs, field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
		}
		return errs
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		errs = append(errs, validateIngress(ingress, path.Index(i))...)
	}
	return errs
}

func validateIngress(ingress corev1.LoadBalancerIngress, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ingress.IP != "" {
		errs = append(errs, validateIP(ingress.IP, path.Child("ip"))...)
	}
	mode := path.Child("ipMode")
	switch {
	case ingress.IPMode == nil && ingress.IP != "":
		errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
	case ingress.IPMode != nil && ingress.IP == "":
		errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
	case ingress.IPMode != nil:
		errs = append(errs, check.OptionalOneOf(mode, ingress.IPMode,
			corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
	}
	if name := ingress.Hostname; name != "" {
		errs = append(errs, check.Messages(path.Child("hostname"), name, validation.IsDNS1123Subdomain(name))...)
		if netutils.ParseIPSloppy(name) != nil {
			errs = append(errs, field.Invalid(path.Child("hostname"), name, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}
