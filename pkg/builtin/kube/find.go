package kube

import (
	"cmp"
	"fmt"
	"slices"
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
		"pkg/builtin/discovery":    "endpointslices.discovery.k8s.io",
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

// find is the group and the plural name of a resource named as [Resources] takes it.
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
		return apiGroup{}, "", fmt.Errorf("resource %q: %s serves it: use that", name, home)
	}
	var all []string
	for _, g := range every() {
		for _, d := range g.group().Resources() {
			all = append(all, g.qualified(d.Name()))
		}
	}
	return apiGroup{}, "", fmt.Errorf("resource %q: kube has none of that name; %s", name, suggest(name, all))
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
			return apiGroup{}, fmt.Errorf("group %q: %s serves it: use that", name, home)
		}
	}
	return apiGroup{}, fmt.Errorf("group %q: kube has none of that name; %s", name, suggest(name, all))
}

// suggest names what was probably meant, or all there is.
func suggest(name string, all []string) string {
	distances := map[string]int{}
	for _, candidate := range all {
		distances[candidate] = near(strings.ToLower(name), candidate)
	}
	good := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return distances[c] > 2 })
	if len(good) == 0 {
		return "it has " + strings.Join(all, ", ")
	}
	slices.SortStableFunc(good, func(a, b string) int { return cmp.Compare(distances[a], distances[b]) })
	return "did you mean " + strings.Join(good[:min(3, len(good))], " or ") + "?"
}

// near is how many edits lead from a name to a candidate, with or without
// the candidate's group, which counts one when it is another: "deployment" is
// as near to deployments.apps as "deployments.app" and "deployments.batch".
func near(name, candidate string) int {
	plural, group, _ := strings.Cut(candidate, ".")
	first, _, _ := strings.Cut(group, ".")
	bare, _, _ := strings.Cut(name, ".")
	if len(name) > 1 && strings.HasPrefix(plural, name) {
		return 1 // an abbreviation
	}
	return min(edits(name, candidate), edits(name, plural), edits(name, plural+"."+first), edits(bare, plural)+1)
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
