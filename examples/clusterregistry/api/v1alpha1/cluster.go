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

// ServerFor is the URL for a client, or for any if the address is not valid: that of the first
// endpoint whose network has the client. It is empty if there is none.
func (c *Cluster) ServerFor(client netip.Addr) string {
	for _, e := range c.Spec.KubernetesAPIEndpoints.ServerEndpoints {
		network, err := netip.ParsePrefix(e.ClientCIDR)
		if err != nil || !client.IsValid() || network.Bits() == 0 || network.Contains(client.Unmap()) {
			return e.URL()
		}
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
