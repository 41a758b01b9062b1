package admit

import (
	"net/netip"

	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
)

// PrivateNetworks are the addresses that are not of the public internet: those
// of the host itself, of its links, and of private networks, in IPv4 and IPv6
// (https://www.iana.org/assignments/iana-ipv4-special-registry,
// https://www.iana.org/assignments/iana-ipv6-special-registry), and those of IPv6
// that a NAT64 gateway translates to IPv4. Set field Deny of webhook parts and of
// crd.Definitions to them when authors of webhook configurations and CRDs must
// not reach the network of the server: cloud metadata services are in them.
func PrivateNetworks() []netip.Prefix { return dialing.PrivateNetworks() }

// LinkLocal are the addresses that webhooks are never at, unless field Allow names them:
// those of the host's links, 169.254.0.0/16 and fe80::/10, and those of metadata services
// of clouds in other networks.
func LinkLocal() []netip.Prefix { return dialing.LinkLocal() }
