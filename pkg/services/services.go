// Package services finds where Services run, in a control plane that has no pods. The
// Services are those that admission webhooks, conversion webhooks of CRDs and remote
// APIServices name. There are two ways, and a plane may have both:
//
//   - [Addresses]: whoever runs the server names where they are
//   - [Resolver]: the Services of the API say it, by an external name or by endpoints
//
// TLS is verified as in Kubernetes: against the caBundle of the webhook or APIService, for
// NAME.NAMESPACE.svc, wherever the connection goes to.
package services

import (
	"maps"
	"slices"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Addresses is the part that names where Services run: "NAMESPACE/NAME", or
// "NAMESPACE/NAME:PORT" for one port of it, to "HOST:PORT". Those Services need not be in
// the API, and what the API says of them does not matter. Nor do the networks that
// webhooks may not be in, such as those of [admit.PrivateNetworks], which are about
// addresses that users of the API choose. Several of these parts add up. Empty: it names
// none.
//
// [admit.PrivateNetworks]: https://pkg.go.dev/github.com/sailplane-dev/sailplane/pkg/admit#PrivateNetworks
type Addresses map[string]string

// PartName implements the name errors use.
func (Addresses) PartName() string { return "services.Addresses" }

// Install declares the addresses. Build reports what is no Service or no address.
func (a Addresses) Install(p *controlplane.Plan) error {
	for _, service := range slices.Sorted(maps.Keys(a)) {
		p.LocateService(service, a[service])
	}
	return nil
}
