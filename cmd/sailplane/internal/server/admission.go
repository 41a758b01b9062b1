package server

import (
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

// denied are the networks that webhooks may not be in.
func (b *build) denied() []netip.Prefix {
	var all []netip.Prefix
	for _, word := range b.Admission.Webhooks.Deny {
		if word == privateNetworks {
			all = append(all, admit.PrivateNetworks()...)
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil || p.Addr().Is4In6() {
			b.wrong("admission.webhooks.deny", "%q is not a network: want CIDRs such as 10.0.0.0/8 or fd00::/8, or %s",
				word, privateNetworks)
			return nil
		}
		all = append(all, p.Masked())
	}
	return all
}
