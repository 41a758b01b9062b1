package kube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// elsewhere are the resources that another package serves.
func elsewhere() map[string]string {
	homes := map[string]string{}
	for home, names := range map[string]string{
		"pkg/builtin/core": "namespaces configmaps secrets events events.events.k8s.io serviceaccounts resourcequotas " +
			"limitranges services endpoints",
		"pkg/builtin/coordination": "leases.coordination.k8s.io",
		"pkg/builtin/endpoints":    "endpointslices.discovery.k8s.io",
		"pkg/builtin/certificates": "certificatesigningrequests.certificates.k8s.io clustertrustbundles.certificates.k8s.io " +
			"podcertificaterequests.certificates.k8s.io",
		"pkg/builtin/rbac": "roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io " +
			"clusterroles.rbac.authorization.k8s.io clusterrolebindings.rbac.authorization.k8s.io",
		"pkg/builtin/admissionregistration": "mutatingwebhookconfigurations.admissionregistration.k8s.io " +
			"validatingwebhookconfigurations.admissionregistration.k8s.io " +
			"validatingadmissionpolicies.admissionregistration.k8s.io " +
			"validatingadmissionpolicybindings.admissionregistration.k8s.io " +
			"mutatingadmissionpolicies.admissionregistration.k8s.io " +
			"mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"pkg/crd":        "customresourcedefinitions.apiextensions.k8s.io",
		"pkg/aggregator": "apiservices.apiregistration.k8s.io",
	} {
		for name := range strings.FieldsSeq(names) {
			homes[name] = home
		}
	}
	return homes
}

// Names are the resources that this package has, as [Resources] takes them.
func Names() []schema.GroupResource {
	var all []schema.GroupResource
	for _, g := range every() {
		for _, d := range g.group().Resources() {
			all = append(all, schema.GroupResource{Group: g.gv.Group, Resource: d.Name()})
		}
	}
	return all
}

// find returns the group and the plural name of a resource, named as for [Resources].
func find(name string) (apiGroup, string, error) {
	want := schema.ParseGroupResource(name)
	for _, g := range every() {
		if g.gv.Group != want.Group {
			continue
		}
		for _, d := range g.group().Resources() {
			if d.Name() == want.Resource {
				return g, want.Resource, nil
			}
		}
	}
	if home, ok := elsewhere()[name]; ok {
		return apiGroup{}, "", fmt.Errorf("resource %q: %s serves it: use that package", name, home)
	}
	var all []string
	for _, g := range every() {
		for _, d := range g.group().Resources() {
			all = append(all, g.qualified(d.Name()))
		}
	}
	return apiGroup{}, "", fmt.Errorf("resource %q: kube has no such resource; %s", name, suggest(name, all))
}

func findGroup(name string) (apiGroup, error) {
	var all []string
	for _, g := range every() {
		if name == g.gv.Group || name == g.name() {
			return g, nil
		}
		all = append(all, g.name())
	}
	for qualified, home := range elsewhere() {
		if group := schema.ParseGroupResource(qualified).Group; group != "" && group == name {
			return apiGroup{}, fmt.Errorf("group %q: %s serves it: use that package", name, home)
		}
	}
	return apiGroup{}, fmt.Errorf("group %q: kube has no such group; %s", name, suggest(name, all))
}

// suggest returns the names that begin like this one, or else all.
func suggest(name string, all []string) string {
	bare, _, _ := strings.Cut(strings.ToLower(name), ".")
	var near []string
	letters := 2 // so few are no hint
	for _, candidate := range all {
		n := 0
		for n < min(len(bare), len(candidate)) && bare[n] == candidate[n] {
			n++
		}
		if n > letters {
			near, letters = nil, n
		}
		if n == letters && n > 2 {
			near = append(near, candidate)
		}
	}
	if len(near) == 0 {
		return "it has " + strings.Join(all, ", ")
	}
	return "did you mean " + strings.Join(near[:min(3, len(near))], " or ") + "?"
}
