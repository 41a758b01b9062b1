package core

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// fillClusterIPs is for clients that only know clusterIP, the older field.
func fillClusterIPs(s *corev1.Service) {
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// prepareServiceUpdate keeps fields that the client left out but does not mean
// to remove, and removes those that the new type does not use.
func prepareServiceUpdate(_ context.Context, s, old *corev1.Service) {
	keepAllocated(s, old)
	syncClusterIPs(s, old)
	dropForType(s, old)
	if !isLoadBalancer(s) {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// keepAllocated keeps addresses and ports, which in Kubernetes the server
// chooses, when a client replaces a service with one that never had them.
func keepAllocated(s, old *corev1.Service) {
	if hasClusterIP(s) && hasClusterIP(old) {
		setDefault(&s.Spec.ClusterIP, old.Spec.ClusterIP)
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	if hasNodePorts(s) && hasNodePorts(old) {
		keepNodePorts(s, old)
	}
	if hasHealthCheck(s) && hasHealthCheck(old) {
		setDefault(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
}

// keepNodePorts identifies a port by its name; everything else may have changed.
func keepNodePorts(s, old *corev1.Service) {
	used, byName := map[int32]bool{}, map[string]int32{}
	for _, p := range s.Spec.Ports {
		used[p.NodePort] = true
	}
	for _, p := range old.Spec.Ports {
		byName[p.Name] = p.NodePort
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if port := byName[p.Name]; p.NodePort == 0 && !used[port] {
			p.NodePort, used[port] = port, true
		}
	}
}

// syncClusterIPs lets a client that only knows clusterIP change both fields.
func syncClusterIPs(s, old *corev1.Service) {
	if s.Spec.ClusterIP == old.Spec.ClusterIP || !slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		return
	}
	s.Spec.ClusterIPs = nil
	fillClusterIPs(s)
}

// dropForType empties fields that the new type does not have, if the client
// left them as they were. Validation refuses those that it changed.
func dropForType(s, old *corev1.Service) {
	if hasClusterIP(old) && !hasClusterIP(s) {
		if s.Spec.ClusterIP == old.Spec.ClusterIP && slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		}
		if slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies) {
			s.Spec.IPFamilies = nil
		}
		if ptr.Equal(s.Spec.IPFamilyPolicy, old.Spec.IPFamilyPolicy) {
			s.Spec.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(s) {
		dropNodePorts(s, old)
		if s.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
			s.Spec.ExternalTrafficPolicy = ""
		}
	}
	if hasHealthCheck(old) && !hasHealthCheck(s) && s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		s.Spec.HealthCheckNodePort = 0
	}
	if isLoadBalancer(old) && !isLoadBalancer(s) {
		if ptr.Equal(s.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			s.Spec.LoadBalancerClass = nil
		}
	}
}

// dropNodePorts empties nodePorts unless one of them is new.
func dropNodePorts(s, old *corev1.Service) {
	had := map[int32]bool{0: true}
	for _, p := range old.Spec.Ports {
		had[p.NodePort] = true
	}
	if slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return !had[p.NodePort] }) {
		return
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 0
	}
}

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func validateServiceUpdate(_ context.Context, s, old *corev1.Service) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if hasClusterIP(s) && hasClusterIP(old) {
		errs = append(errs, validateClusterIPChange(s, old, spec)...)
		errs = append(errs, validateFamilyChange(s, old, spec)...)
	}
	if isLoadBalancer(s) && isLoadBalancer(old) && !ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(spec.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set"))
	}
	// Kubernetes has always chosen a port by then; here one may still be added.
	if hasHealthCheck(s) && hasHealthCheck(old) && old.Spec.HealthCheckNodePort != 0 &&
		s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(spec.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

// validateClusterIPChange lets a second address come and go, but not the first.
func validateClusterIPChange(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	if isHeadless(s) && isHeadless(old) {
		return nil
	}
	path, now, was := spec.Child("clusterIPs"), s.Spec.ClusterIPs, old.Spec.ClusterIPs
	if len(was) > 0 && len(now) == 0 {
		return field.ErrorList{field.Invalid(path.Index(0), now, "primary clusterIP can not be unset")}
	}
	errs := validateFirst(now, was, now, path)
	if len(was) > len(now) && len(now) == 1 && !isSingleStack(s) {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	return errs
}

// validateFamilyChange is the same for families. Those of a headless service,
// which has no addresses, may change.
func validateFamilyChange(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	if isHeadless(s) || isHeadless(old) {
		return nil
	}
	path, now, was := spec.Child("ipFamilies"), s.Spec.IPFamilies, old.Spec.IPFamilies
	if len(was) == len(now) {
		var errs field.ErrorList
		for i := range was {
			if now[i] != was[i] {
				errs = append(errs, field.Invalid(path.Index(0), now, "may not change once set"))
			}
		}
		return errs
	}
	var errs field.ErrorList
	if len(was) > len(now) && len(s.Spec.ClusterIPs) == 0 {
		errs = append(errs, field.Invalid(path.Index(0), now, "primary ipFamily can not be unset"))
	}
	errs = append(errs, validateFirst(now, was, s.Spec.ClusterIPs, path)...)
	if len(was) > len(now) && len(now) == 1 && !isSingleStack(s) {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}

// validateFirst refuses to change the first value, and the others too if none
// was added or removed. shown is the value in the error.
func validateFirst[T comparable](now, was []T, shown any, path *field.Path) field.ErrorList {
	n := min(1, len(now), len(was))
	if len(now) == len(was) {
		n = len(now)
	}
	var errs field.ErrorList
	for i := range n {
		if now[i] != was[i] {
			errs = append(errs, field.Invalid(path.Index(i), shown, "may not change once set"))
		}
	}
	return errs
}

func isSingleStack(s *corev1.Service) bool {
	return ptr.Deref(s.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack
}
