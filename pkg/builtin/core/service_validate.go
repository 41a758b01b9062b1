package core

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// maxClientIPAffinity is a day, in seconds.
const maxClientIPAffinity = 86400

const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

func validateService(_ context.Context, s *corev1.Service) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateMetaFinalizers(&s.ObjectMeta)
	errs = append(errs, validateTopologyMode(s)...)
	errs = append(errs, validateServiceType(s, spec)...)
	errs = append(errs, validateServicePorts(s, spec.Child("ports"))...)
	errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, validateAffinity(s, spec)...)
	if hasClusterIP(s) {
		errs = append(errs, validateClusterIPs(s, spec)...)
	}
	for i, ip := range s.Spec.ExternalIPs {
		path := spec.Child("externalIPs").Index(i)
		if problems := validateIP(ip, path); len(problems) > 0 {
			errs = append(errs, problems...)
			continue
		}
		errs = append(errs, check.Reachable(path, ip)...)
	}
	errs = append(errs, check.OneOf(spec.Child("type"), s.Spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	errs = append(errs, validatePortNumbers(s, spec.Child("ports"))...)
	errs = append(errs, validateSourceRanges(s, spec)...)
	errs = append(errs, validateLoadBalancer(s, spec)...)
	errs = append(errs, validateTraffic(s, spec)...)
	return append(errs, validateServiceStatus(s)...)
}

func validateTopologyMode(s *corev1.Service) field.ErrorList {
	hints, hasHints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, hasMode := s.Annotations[corev1.AnnotationTopologyMode]
	if !hasHints || !hasMode || hints == mode {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
		fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))}
}

// validateServiceType checks the fields that only some types may, or must, have.
func validateServiceType(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && hasClusterIP(s) {
		errs = append(errs, field.Required(spec.Child("ports"), ""))
	}
	if hasNodePorts(s) && isHeadless(s) {
		errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
			fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
	}
	if hasClusterIP(s) {
		return errs
	}
	const text = "may not be set for ExternalName services"
	if len(s.Spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("clusterIPs"), text))
	}
	if len(s.Spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ipFamilies"), text))
	}
	if s.Spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(spec.Child("ipFamilyPolicy"), text))
	}
	path := spec.Child("externalName")
	// A name that ends in a dot is fully qualified.
	name := strings.TrimSuffix(s.Spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(path, ""))
	}
	return append(errs, check.Messages(path, name, validation.IsDNS1123Subdomain(name))...)
}

func validateServicePorts(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, p := range s.Spec.Ports {
		at := path.Index(i)
		errs = append(errs, validatePortName(p.Name, len(s.Spec.Ports) > 1, at.Child("name"))...)
		if seen[p.Name] && p.Name != "" {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		seen[p.Name] = true
		errs = append(errs, check.Messages(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))...)
		errs = append(errs, validateProtocol(p.Protocol, at.Child("protocol"))...)
		target := at.Child("targetPort")
		if p.TargetPort.Type == intstr.String {
			errs = append(errs, check.Messages(target, p.TargetPort.StrVal, validation.IsValidPortName(p.TargetPort.StrVal))...)
		} else {
			errs = append(errs, check.Messages(target, p.TargetPort.IntValue(), validation.IsValidPortNum(p.TargetPort.IntValue()))...)
		}
		errs = append(errs, validateAppProtocol(p.AppProtocol, at.Child("appProtocol"))...)
	}
	return errs
}

// validatePortName wants a DNS label, or nothing where there is one port only.
func validatePortName(name string, required bool, path *field.Path) field.ErrorList {
	if name != "" {
		return check.Messages(path, name, validation.IsDNS1123Label(name))
	}
	if required {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateProtocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return check.OneOf(path, p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func validateAppProtocol(name *string, path *field.Path) field.ErrorList {
	if name == nil {
		return nil
	}
	return validateQualifiedName(*name, path)
}

func validateAffinity(s *corev1.Service, spec *field.Path) field.ErrorList {
	errs := check.OneOf(spec.Child("sessionAffinity"), s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	// Defaulting has set a timeout.
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		sticky := s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
		if t := *c.ClientIP.TimeoutSeconds; sticky && (t <= 0 || t > maxClientIPAffinity) {
			errs = append(errs, field.Invalid(spec.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), t,
				fmt.Sprintf("must be greater than 0 and less than %d", maxClientIPAffinity)))
		}
	}
	return errs
}

// servicePort is what the internal type of Kubernetes looks like in errors.
type servicePort struct {
	Name        string
	Protocol    corev1.Protocol
	AppProtocol *string
	Port        int32
	TargetPort  intstr.IntOrString
	NodePort    int32
}

// validatePortNumbers checks that no number is given twice for a protocol.
func validatePortNumbers(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		for i, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				errs = append(errs, field.Forbidden(path.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			}
		}
	}
	seen := map[servicePort]bool{}
	for i, p := range s.Spec.Ports {
		key := servicePort{Protocol: p.Protocol, NodePort: p.NodePort}
		if seen[key] && p.NodePort != 0 {
			errs = append(errs, field.Duplicate(path.Index(i).Child("nodePort"), p.NodePort))
		}
		seen[key] = true
	}
	seen = map[servicePort]bool{}
	for i, p := range s.Spec.Ports {
		key := servicePort{Protocol: p.Protocol, Port: p.Port}
		if seen[key] {
			errs = append(errs, field.Duplicate(path.Index(i), key))
		}
		seen[key] = true
	}
	return errs
}

func validateSourceRanges(s *corev1.Service, spec *field.Path) field.ErrorList {
	// Kubernetes names the field with a capital, as it was once spelled.
	path, ranges := spec.Child("LoadBalancerSourceRanges"), s.Spec.LoadBalancerSourceRanges
	at := path.Index
	if len(ranges) == 0 {
		text, set := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
		if !set {
			return nil
		}
		path = field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
		at = func(int) *field.Path { return path }
		if strings.TrimSpace(text) != "" {
			ranges = strings.Split(text, ",")
		}
	}
	var errs field.ErrorList
	if !isLoadBalancer(s) {
		errs = append(errs, field.Forbidden(path, onlyLoadBalancer))
	}
	for i, cidr := range ranges {
		errs = append(errs, validation.IsValidCIDRForLegacyField(at(i), strings.TrimSpace(cidr), true, nil)...)
	}
	return errs
}

func validateLoadBalancer(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Spec.AllocateLoadBalancerNodePorts != nil && !isLoadBalancer(s) {
		errs = append(errs, field.Forbidden(spec.Child("allocateLoadBalancerNodePorts"), onlyLoadBalancer))
	}
	if class := s.Spec.LoadBalancerClass; class != nil {
		path := spec.Child("loadBalancerClass")
		if !isLoadBalancer(s) {
			return append(errs, field.Forbidden(path, onlyLoadBalancer))
		}
		errs = append(errs, validateQualifiedName(*class, path)...)
	}
	return errs
}

func validateTraffic(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	external, path := s.Spec.ExternalTrafficPolicy, spec.Child("externalTrafficPolicy")
	if !isExternal(s) && external != "" {
		errs = append(errs, field.Invalid(path, external, "may only be set for externally-accessible services"))
	} else if isExternal(s) {
		errs = append(errs, check.OneOf(path, external,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	if port := s.Spec.HealthCheckNodePort; port != 0 {
		path := spec.Child("healthCheckNodePort")
		if !hasHealthCheck(s) {
			errs = append(errs, field.Invalid(path, port,
				"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		} else {
			errs = append(errs, check.Messages(path, port, validation.IsValidPortNum(int(port)))...)
		}
	}
	errs = append(errs, check.OptionalOneOf(spec.Child("internalTrafficPolicy"), s.Spec.InternalTrafficPolicy,
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	return append(errs, check.OptionalOneOf(spec.Child("trafficDistribution"), s.Spec.TrafficDistribution,
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode,
		corev1.ServiceTrafficDistributionPreferSameZone)...)
}

func validateQualifiedName(name string, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelName(name, path)
}
