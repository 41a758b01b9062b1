package core

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// Endpoints is the part that serves endpoints (v1). Every answer carries the
// warning that they are deprecated since v1.33: EndpointSlices
// (discovery.k8s.io/v1) take their place, and nothing copies one to the other.
type Endpoints struct{}

// Install adds endpoints to the core group.
func (Endpoints) Install(p *controlplane.Plan) error { return shared().Serve(p, endpoints()) }

func endpoints() *apis.Definition {
	return apis.Resource[corev1.Endpoints, corev1.EndpointsList]("endpoints",
		apis.ShortNames("ep"),
		apis.NoGeneration(),
		apis.CreateOnUpdate(),
		apis.Default(func(e *corev1.Endpoints) {
			for _, subset := range e.Subsets {
				for i := range subset.Ports {
					setDefault(&subset.Ports[i].Protocol, corev1.ProtocolTCP)
				}
			}
		}),
		apis.Validate(validateEndpoints),
		apis.Warn(endpointsWarnings),
		apis.Columns(func(e *corev1.Endpoints) []any { return []any{endpointsText(e)} }, metav1.TableColumnDefinition{
			Name: "Endpoints", Type: "string", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"],
		}),
	)
}

// endpointsText shows the first three.
func endpointsText(e *corev1.Endpoints) string {
	if len(e.Subsets) == 0 {
		return "<none>"
	}
	var all []string
	for _, subset := range e.Subsets {
		// A headless service may have no ports.
		if len(subset.Ports) == 0 {
			for _, address := range subset.Addresses {
				all = append(all, address.IP)
			}
		}
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses {
				all = append(all, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	const shown = 3
	if more := len(all) - shown; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:shown], ","), more)
	}
	return strings.Join(all, ",")
}

func validateEndpoints(_ context.Context, e *corev1.Endpoints) field.ErrorList {
	errs := validateMetaFinalizers(&e.ObjectMeta)
	for i, subset := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		if len(subset.Addresses) == 0 && len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, address := range subset.Addresses {
			errs = append(errs, validateEndpointAddress(address, path.Child("addresses").Index(j))...)
		}
		for j, address := range subset.NotReadyAddresses {
			errs = append(errs, validateEndpointAddress(address, path.Child("notReadyAddresses").Index(j))...)
		}
		for j, port := range subset.Ports {
			at := path.Child("ports").Index(j)
			errs = append(errs, validatePortName(port.Name, len(subset.Ports) > 1, at.Child("name"))...)
			errs = append(errs, check.Messages(at.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))...)
			errs = append(errs, validateProtocol(port.Protocol, at.Child("protocol"))...)
			errs = append(errs, validateAppProtocol(port.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}

func validateEndpointAddress(a corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := validateIP(a.IP, path.Child("ip"))
	if a.Hostname != "" {
		errs = append(errs, check.Messages(path.Child("hostname"), a.Hostname, validation.IsDNS1123Label(a.Hostname))...)
	}
	if a.NodeName != nil {
		errs = append(errs, check.Messages(path.Child("nodeName"), *a.NodeName, apivalidation.NameIsDNSSubdomain(*a.NodeName, false))...)
	}
	return append(errs, check.Reachable(path.Child("ip"), a.IP)...)
}

// endpointsWarnings is about addresses in an unusual form.
func endpointsWarnings(_ context.Context, e *corev1.Endpoints) []string {
	var all []string
	for i, subset := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		for j, a := range subset.Addresses {
			all = append(all, validation.GetWarningsForIP(path.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range subset.NotReadyAddresses {
			all = append(all, validation.GetWarningsForIP(path.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
	}
	return all
}
