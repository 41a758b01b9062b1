package v1alpha1

import (
	"net/netip"
	"strings"
)

// URL is the URL of the address.
func (e ServerAddressByClientCIDR) URL() string {
	if strings.Contains(e.ServerAddress, "://") {
		return e.ServerAddress
	}
	return "https://" + e.ServerAddress
}

// ServerFor is the URL for a client: that of the first endpoint whose network has it. If the address
// is not valid, it is one for all clients, or else the first one. It is empty if there is none.
func (c *Cluster) ServerFor(client netip.Addr) string {
	all := c.Spec.KubernetesAPIEndpoints.ServerEndpoints
	for _, e := range all {
		network, err := netip.ParsePrefix(e.ClientCIDR)
		if err != nil || network.Bits() == 0 || network.Contains(client.Unmap()) {
			return e.URL()
		}
	}
	if len(all) > 0 && !client.IsValid() {
		return all[0].URL()
	}
	return ""
}

// Condition is the condition of a type, which has no status if nothing is known.
func (c *Cluster) Condition(kind string) ClusterCondition {
	for _, found := range c.Status.Conditions {
		if found.Type == kind {
			return found
		}
	}
	return ClusterCondition{Type: kind}
}

// SetCondition puts a condition in the place of that of its type.
func (c *Cluster) SetCondition(is ClusterCondition) {
	for i, found := range c.Status.Conditions {
		if found.Type == is.Type {
			c.Status.Conditions[i] = is
			return
		}
	}
	c.Status.Conditions = append(c.Status.Conditions, is)
}
