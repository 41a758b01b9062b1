package kube

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	networkingrules "github.com/sailplane-dev/sailplane/pkg/internal/rules/networking"
)

func networking() apiGroup {
	definitions, rules := networkingDefinitions, networkingrules.RegisterValidations
	return apiGroup{networkingv1.SchemeGroupVersion, definitions, rules, nil, []func() *apis.Definition{
		ingresses, ingressClasses, networkPolicies, ipAddresses, serviceCIDRs,
	}}
}

func ingresses() *apis.Definition {
	return apis.Resource[networkingv1.Ingress, networkingv1.IngressList]("ingresses",
		apis.ShortNames("ing"), apis.StatusAndMetadata(),
		apis.Validate(validateIngress),
		table(ingressRow, "Class", "Hosts", "Address", "Ports"),
	)
}

func validateIngress(_ context.Context, i *networkingv1.Ingress) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if len(i.Spec.Rules) == 0 && i.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(spec, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(i.Spec.DefaultBackend, spec.Child("defaultBackend"))...)
	}
	for r, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		paths := spec.Child("rules").Index(r).Child("http", "paths")
		if len(rule.HTTP.Paths) == 0 {
			errs = append(errs, field.Required(paths, ""))
		}
		for p := range rule.HTTP.Paths {
			errs = append(errs, validateIngressPath(&rule.HTTP.Paths[p], paths.Index(p))...)
		}
	}
	return errs
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	errs := check.OneOf(at.Child("pathType"), *p.PathType,
		networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific)
	if *p.PathType != networkingv1.PathTypeImplementationSpecific || p.Path != "" {
		if !strings.HasPrefix(p.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
		}
	}
	return append(errs, validateBackend(&p.Backend, at.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource == nil && b.Service == nil:
		return field.ErrorList{field.Required(at, "port name or number is required")}
	case b.Resource != nil:
		errs := check.Required(at.Child("resource", "kind"), b.Resource.Kind)
		return append(errs, check.Required(at.Child("resource", "name"), b.Resource.Name)...)
	}
	errs := check.Required(at.Child("service", "name"), b.Service.Name)
	if named, numbered := b.Service.Port.Name != "", b.Service.Port.Number != 0; named == numbered {
		if named {
			return append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
		}
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

func ingressRow(i *networkingv1.Ingress) []any {
	var hosts []string
	for _, rule := range i.Spec.Rules {
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	var addresses []string
	for _, a := range i.Status.LoadBalancer.Ingress {
		if name := cmp.Or(a.IP, a.Hostname); name != "" {
			addresses = append(addresses, name)
		}
	}
	slices.Sort(addresses)
	return []any{
		ptr.Deref(i.Spec.IngressClassName, none), hostsText(hosts, len(i.Spec.Rules)),
		strings.Join(slices.Compact(addresses), ","), ports,
	}
}

// hostsText is the first three hosts.
func hostsText(hosts []string, rules int) string {
	const most = 3
	switch {
	case len(hosts) == 0:
		return "*"
	case rules > most:
		return strings.Join(hosts[:min(most, len(hosts))], ",") + " + " + plural(rules-most)
	}
	return strings.Join(hosts, ",")
}

func ingressClasses() *apis.Definition {
	return apis.Resource[networkingv1.IngressClass, networkingv1.IngressClassList]("ingressclasses",
		apis.ClusterScoped(),
		apis.Default(func(c *networkingv1.IngressClass) {
			if c.Spec.Parameters != nil {
				set(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		}),
		apis.Validate(func(_ context.Context, c *networkingv1.IngressClass) field.ErrorList {
			return check.Required(field.NewPath("spec", "controller"), c.Spec.Controller)
		}),
		constant("spec.controller", func(c *networkingv1.IngressClass) any { return c.Spec.Controller }),
		table(func(c *networkingv1.IngressClass) []any {
			parameters := none
			if p := c.Spec.Parameters; p != nil {
				parameters = p.Kind
				if value(p.APIGroup) != "" {
					parameters += "." + *p.APIGroup
				}
				parameters += "/" + p.Name
			}
			return []any{c.Spec.Controller, parameters}
		}, "Controller", "Parameters"),
	)
}

func networkPolicies() *apis.Definition {
	return apis.Resource[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList]("networkpolicies",
		apis.ShortNames("netpol"),
		apis.Default(defaultNetworkPolicy),
		table(func(n *networkingv1.NetworkPolicy) []any {
			return []any{metav1.FormatLabelSelector(&n.Spec.PodSelector)}
		}, "Pod-Selector"),
	)
}

func defaultNetworkPolicy(n *networkingv1.NetworkPolicy) {
	if len(n.Spec.PolicyTypes) == 0 {
		n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(n.Spec.Egress) > 0 {
			n.Spec.PolicyTypes = append(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, rule := range n.Spec.Ingress {
		for i := range rule.Ports {
			set(&rule.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
	for _, rule := range n.Spec.Egress {
		for i := range rule.Ports {
			set(&rule.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

func ipAddresses() *apis.Definition {
	return apis.Resource[networkingv1.IPAddress, networkingv1.IPAddressList]("ipaddresses",
		apis.ClusterScoped(), apis.ShortNames("ip"), apis.NoGeneration(),
		apis.NameValidation(func(name string, _ bool) []string {
			if ip, err := netip.ParseAddr(name); err != nil || ip.String() != name {
				return []string{"must be an IP address in canonical form"}
			}
			return nil
		}),
		constant("spec.parentRef", func(a *networkingv1.IPAddress) any { return a.Spec.ParentRef }),
		table(func(a *networkingv1.IPAddress) []any {
			p := value(a.Spec.ParentRef)
			return []any{strings.ToLower(strings.Trim(p.Group+"."+p.Resource, ".")) + "/" + strings.Trim(p.Namespace+"/"+p.Name, "/")}
		}, "ParentRef"),
	)
}

func serviceCIDRs() *apis.Definition {
	return apis.Resource[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList]("servicecidrs",
		apis.ClusterScoped(), apis.Status(), apis.NoGeneration(),
		apis.Validate(func(_ context.Context, c *networkingv1.ServiceCIDR) field.ErrorList {
			at := field.NewPath("spec", "cidrs")
			if n := len(c.Spec.CIDRs); n == 0 {
				return field.ErrorList{field.Required(at, "at least one CIDR required")}
			} else if n > 2 {
				return field.ErrorList{field.TooMany(at, n, 2)}
			}
			var errs field.ErrorList
			for i, cidr := range c.Spec.CIDRs {
				if _, err := netip.ParsePrefix(cidr); err != nil {
					errs = append(errs, field.Invalid(at.Index(i), cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
				}
			}
			return errs
		}),
		apis.ValidateUpdate(func(_ context.Context, c, old *networkingv1.ServiceCIDR) field.ErrorList {
			if len(old.Spec.CIDRs) == 1 && len(c.Spec.CIDRs) == 2 && c.Spec.CIDRs[0] == old.Spec.CIDRs[0] {
				return nil // the other IP family is added
			}
			return immutable(field.NewPath("spec", "cidrs"), c.Spec.CIDRs, old.Spec.CIDRs)
		}),
		table(func(c *networkingv1.ServiceCIDR) []any { return []any{strings.Join(c.Spec.CIDRs, ",")} }, "CIDRs"),
	)
}

func plural(n int) string { return strconv.Itoa(n) + " more..." }
