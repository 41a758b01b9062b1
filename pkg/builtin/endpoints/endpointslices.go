// Package endpoints has the resources of the group discovery.k8s.io (v1):
//
//   - [EndpointSlices], the addresses behind a service
package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// EndpointSlices is the part that serves endpointslices (discovery.k8s.io/v1).
// They are records: no controller here makes them from services, or from
// Endpoints. The field deprecatedTopology is dropped, as Kubernetes does in v1.
type EndpointSlices struct{}

// Install adds endpointslices to the group.
func (EndpointSlices) Install(p *controlplane.Plan) error { return shared().Install(p) }

// shared is the group, made once per process: its scheme and definitions are
// the same for every plane.
var shared = sync.OnceValue(func() *apis.Group {
	return apis.NewGroup(discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme, endpointSliceDefinitions, endpointSlices())
})

func endpointSlices() *apis.Definition {
	docs := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return apis.Resource[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList]("endpointslices",
		apis.Default(defaultPorts),
		apis.Drop(dropTopology),
		apis.PrepareForUpdate(func(_ context.Context, s, old *discoveryv1.EndpointSlice) {
			// The only kind whose generation counts changes of labels: they say
			// to which service the slice belongs.
			if !maps.Equal(s.Labels, old.Labels) {
				s.Generation = old.Generation + 1
			}
		}),
		apis.Validate(validate),
		apis.ValidateUpdate(validateUpdate),
		apis.Warn(warnings),
		apis.Columns(row,
			metav1.TableColumnDefinition{Name: "AddressType", Type: "string", Description: docs["addressType"]},
			metav1.TableColumnDefinition{Name: "Ports", Type: "string", Description: docs["ports"]},
			metav1.TableColumnDefinition{Name: "Endpoints", Type: "string", Description: docs["endpoints"]},
		),
	)
}

func defaultPorts(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		port := &s.Ports[i]
		port.Name, port.Protocol = cmp.Or(port.Name, new("")), cmp.Or(port.Protocol, new(corev1.ProtocolTCP))
	}
}

func dropTopology(s, _ *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

func row(s *discoveryv1.EndpointSlice) []any {
	var ports, addresses []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			ports = append(ports, *p.Name)
		default:
			ports = append(ports, "*")
		}
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []any{string(s.AddressType), firstFew(ports), firstFew(addresses)}
}

// firstFew shows the first three.
func firstFew(all []string) string {
	const shown = 3
	if more := len(all) - shown; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:shown], ","), more)
	}
	return cmp.Or(strings.Join(all, ","), "<unset>")
}

// warnings are about the deprecated kind of addresses, and about those in an
// unusual form.
func warnings(_ context.Context, s *discoveryv1.EndpointSlice) []string {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return []string{field.NewPath("spec", "addressType").String() + ": FQDN endpoints are deprecated"}
	}
	var all []string
	for i, e := range s.Endpoints {
		for j, address := range e.Addresses {
			path := field.NewPath("endpoints").Index(i).Child("addresses").Index(j)
			all = append(all, validation.GetWarningsForIP(path, address)...)
		}
	}
	return all
}
