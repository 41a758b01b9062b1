package endpoints

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// The limits of Kubernetes.
const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxHints     = 8
)

func validate(_ context.Context, s *discoveryv1.EndpointSlice) field.ErrorList {
	errs := check.OneOf(field.NewPath("addressType"), s.AddressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	errs = append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
	return append(errs, validateEndpoints(s.Endpoints, s.AddressType, field.NewPath("endpoints"))...)
}

func validateUpdate(_ context.Context, s, old *discoveryv1.EndpointSlice) field.ErrorList {
	return apivalidation.ValidateImmutableField(s.AddressType, old.AddressType, field.NewPath("addressType"))
}

func validatePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxPorts)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, p := range ports {
		at, name := path.Index(i), ptr.Deref(p.Name, "")
		if name != "" {
			errs = append(errs, check.Messages(at.Child("name"), name, validation.IsDNS1123Label(name))...)
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		seen[name] = true
		errs = append(errs, check.OneOf(at.Child("protocol"), ptr.Deref(p.Protocol, ""),
			corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		if p.AppProtocol != nil {
			errs = append(errs, metav1validation.ValidateLabelName(*p.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}

func validateEndpoints(endpoints []discoveryv1.Endpoint, t discoveryv1.AddressType, path *field.Path) field.ErrorList {
	if len(endpoints) > maxEndpoints {
		return field.ErrorList{field.TooMany(path, len(endpoints), maxEndpoints)}
	}
	var errs field.ErrorList
	for i, e := range endpoints {
		at := path.Index(i)
		addresses := at.Child("addresses")
		if len(e.Addresses) == 0 {
			errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
		} else if len(e.Addresses) > maxAddresses {
			errs = append(errs, field.TooMany(addresses, len(e.Addresses), maxAddresses))
		}
		for j, address := range e.Addresses {
			errs = append(errs, validateAddress(address, t, addresses.Index(j))...)
		}
		if e.NodeName != nil {
			errs = append(errs, validateNodeName(*e.NodeName, at.Child("nodeName"))...)
		}
		if e.Hostname != nil {
			errs = append(errs, check.Messages(at.Child("hostname"), *e.Hostname, validation.IsDNS1123Label(*e.Hostname))...)
		}
		if e.Hints != nil {
			errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
		}
	}
	return errs
}

// validateAddress checks an address of a known type; an unknown type has its own error.
func validateAddress(address string, t discoveryv1.AddressType, path *field.Path) field.ErrorList {
	switch t {
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(path, address)
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
	default:
		return nil
	}
	if errs := validation.IsValidIPForLegacyField(path, address, true, nil); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	if isV6 := netutils.IsIPv6String(address); isV6 != (t == discoveryv1.AddressTypeIPv6) {
		errs = append(errs, field.Invalid(path, address, "must be an "+string(t)+" address"))
	}
	return append(errs, check.Reachable(path, address)...)
}

func validateHints(hints *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	zones, nodes := path.Child("forZones"), path.Child("forNodes")
	if len(hints.ForZones) > maxHints {
		return field.ErrorList{field.TooMany(zones, len(hints.ForZones), maxHints)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, zone := range hints.ForZones {
		at := zones.Index(i).Child("name")
		if seen[zone.Name] {
			errs = append(errs, field.Duplicate(at, zone.Name))
		}
		seen[zone.Name] = true
		errs = append(errs, check.Messages(at, zone.Name, validation.IsValidLabelValue(zone.Name))...)
	}
	if len(hints.ForNodes) > maxHints {
		return append(errs, field.TooMany(nodes, len(hints.ForNodes), maxHints))
	}
	seen = map[string]bool{}
	for i, node := range hints.ForNodes {
		at := nodes.Index(i).Child("name")
		if seen[node.Name] {
			errs = append(errs, field.Duplicate(at, node.Name))
		}
		seen[node.Name] = true
		errs = append(errs, validateNodeName(node.Name, at)...)
	}
	return errs
}

func validateNodeName(name string, path *field.Path) field.ErrorList {
	return check.Messages(path, name, apivalidation.NameIsDNSSubdomain(name, false))
}
