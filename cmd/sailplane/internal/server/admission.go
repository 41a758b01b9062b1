package server

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// AlwaysOn are plugins of kube-apiserver that belong to something else here, and
// cannot be left out.
func AlwaysOn() []string { return []string{"NamespaceLifecycle"} }

// admission returns the plugins that are on.
func (b *build) admission() controlplane.Part {
	var parts controlplane.Parts
	names := AlwaysOn()
	for _, p := range b.plugins() {
		names = append(names, p.Name)
		if b.on(p) {
			parts = append(parts, p.part)
		}
	}
	for field, list := range map[string][]string{"admission.enable": b.Admission.Enable, "admission.disable": b.Admission.Disable} {
		for _, name := range list {
			if !slices.Contains(names, name) {
				b.wrong(field, "there is no plugin %q: want one of %s", name, strings.Join(names, ", "))
			}
		}
	}
	for _, name := range AlwaysOn() {
		if slices.Contains(b.Admission.Disable, name) {
			b.wrong("admission.disable", "%s is always on", name)
		}
	}
	return parts
}

// on tells whether a plugin is.
func (b *build) on(p Plugin) bool {
	return !slices.Contains(b.Admission.Disable, p.Name) || slices.Contains(b.Admission.Enable, p.Name)
}

// privateNetworks stands for admit.PrivateNetworks in admission.webhooks.deny.
const privateNetworks = "private"

// denied are the networks that the operator denies to webhooks.
func (b *build) denied() []netip.Prefix {
	return b.networks("admission.webhooks.deny", b.Admission.Webhooks.Deny)
}

// reach are the networks that the webhooks and aggregated servers may not be in which
// users name, and those of them that they may be in. A server that others reach over a
// network denies its own machine: what listens there may trust what is on it.
func (b *build) reach() (deny, allow []netip.Prefix) {
	deny, allow = b.denied(), b.networks("admission.webhooks.allow", b.Admission.Webhooks.Allow)
	if !isLoopback(b.Listen) {
		deny = append(deny, machine()...)
	}
	return deny, allow
}

// networks are those that a field lists.
func (b *build) networks(field string, words []string) []netip.Prefix {
	var all []netip.Prefix
	for _, word := range words {
		if word == privateNetworks {
			all = append(all, admit.PrivateNetworks()...)
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil || p.Addr().Is4In6() {
			b.wrong(field, "%q is not a network: want CIDRs such as 10.0.0.0/8 or fd00::/8, or %s", word, privateNetworks)
			return nil
		}
		all = append(all, p.Masked())
	}
	return all
}

// isLoopback tells whether only programs of the same machine reach an address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// machine are the addresses of this machine: those of its loopback, and those that its
// interfaces have now.
func machine() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{"0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128", "64:ff9b::7f00:0/104"} {
		all = append(all, netip.MustParsePrefix(p))
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return all // a system that does not tell
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			}
		}
	}
	return all
}
