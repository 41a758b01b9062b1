package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ServiceResolver finds where the Services run that webhooks and APIServices name.
type ServiceResolver interface {
	// ResolveEndpoint returns a URL with the host and port at which a Service's port
	// is reached, or why there is none: a [ServiceError], where it is one of those.
	ResolveEndpoint(namespace, name string, port int32) (*url.URL, error)
}

// ServiceError says why a Service cannot be reached.
type ServiceError struct {
	// Reason is one word, as in condition Available of APIServices: ServiceNotFound,
	// ServicePortError, EndpointsNotFound or MissingEndpoints.
	Reason string
	// Message says what is missing, and what to do.
	Message string
}

// Error implements error.
func (e *ServiceError) Error() string { return e.Message }

// LocateService has the plane reach a Service at an address that the operator of the
// server chose, whatever the Service is in the API: it need not exist. The Service is
// "NAMESPACE/NAME", or "NAMESPACE/NAME:PORT" for one of its ports, and the address
// "HOST:PORT". TLS is verified for NAME.NAMESPACE.svc as always, and the networks that
// webhooks may not be in do not matter, unlike with addresses that come through the API.
func (p *Plan) LocateService(service, address string) {
	p.located = append(p.located, named[string]{p.part, service, address})
}

// ResolveServices adds a way to find Services that are not located (see
// [Plan.LocateService]). Resolvers are asked in the order of the parts; the first that
// finds one decides.
func (p *Plan) ResolveServices(name string, r ServiceResolver) {
	p.resolvers = append(p.resolvers, named[ServiceResolver]{p.part, name, r})
}

// ServiceAddress returns the address that the operator chose for a Service's port, empty
// if there is none (see [Plan.LocateService]).
func (p *Plan) ServiceAddress(namespace, name string, port int32) string {
	if len(p.located) == 0 {
		return ""
	}
	service := namespace + "/" + name
	for _, key := range []string{service + ":" + strconv.Itoa(int(port)), service} {
		for _, l := range p.located {
			if l.name == key {
				return l.value
			}
		}
	}
	return ""
}

// ResolveEndpoint implements ServiceResolver with what the parts declared.
func (p *Plan) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if at := p.ServiceAddress(namespace, name, port); at != "" {
		return &url.URL{Scheme: "https", Host: at}, nil
	}
	var errs []error
	for _, r := range p.resolvers {
		u, err := r.value.ResolveEndpoint(namespace, name, port)
		if err == nil {
			return u, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, &ServiceError{Reason: "ServiceNotFound", Message: fmt.Sprintf("service %q: the server resolves no Services: "+
			"name where it runs (services.Addresses), or have Services of the API resolved (services.Resolver)", namespace+"/"+name)}
	}
	return nil, errors.Join(errs...)
}

// checkServices finds what cannot be a Service or an address.
func (p *Plan) checkServices() []error {
	errs := append(duplicates("address of service", p.located), duplicates("resolver of services", p.resolvers)...)
	for _, l := range p.located {
		if !isService(l.name) {
			errs = append(errs, fmt.Errorf("part %q: service %q: want NAMESPACE/NAME or NAMESPACE/NAME:PORT", l.part, l.name))
		}
		if !isAddress(l.value) {
			errs = append(errs, fmt.Errorf("part %q: service %q: address %q: want HOST:PORT", l.part, l.name, l.value))
		}
	}
	return errs
}

func isService(s string) bool {
	namespace, name, _ := strings.Cut(s, "/")
	name, port, hasPort := strings.Cut(name, ":")
	return len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Label(name)) == 0 && (!hasPort || isPort(port))
}

func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || !isPort(port) {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil || len(validation.IsDNS1123Subdomain(strings.ToLower(host))) == 0
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
