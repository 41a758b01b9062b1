package server

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/endpoints"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/services"
)

// The words of field resources beside names of groups and of resources.
const (
	allResources      = "all"
	standardResources = "standard"
)

// served is a part of resources, which are chosen together: kube has a part for each
// resource, and is not among these.
type served struct {
	group, names string
	part         controlplane.Part
	// always says that it is served whatever is chosen; cluster that it is of use
	// where something runs, and is no standard.
	always, cluster bool
}

func (b *build) kinds() []served {
	return []served{
		{names: "namespaces", part: core.Namespaces{}, always: true},
		{
			group: "authentication.k8s.io", names: "tokenreviews selfsubjectreviews",
			part: controlplane.Parts{authentication.TokenReviews{}, authentication.SelfSubjectReviews{}}, always: true,
		},
		{
			group: "authorization.k8s.io", names: "subjectaccessreviews localsubjectaccessreviews selfsubjectaccessreviews " +
				"selfsubjectrulesreviews",
			part: authorization.All(), always: true,
		},
		{names: "serviceaccounts", part: core.ServiceAccounts{}, always: true}, // their tokens are
		{names: "configmaps", part: core.ConfigMaps{}, always: b.certifies()},
		{names: "secrets", part: core.Secrets{}, always: b.certifies()},
		{names: "services", part: b.services()},
		{names: "endpoints", part: core.Endpoints{}, cluster: true},
		{names: "events events.events.k8s.io events.k8s.io", part: core.Events{}}, // two views of one storage
		{names: "resourcequotas", part: core.ResourceQuotas{}},
		{names: "limitranges", part: core.LimitRanges{}},
		{group: "coordination.k8s.io", names: "leases", part: coordination.Leases{}, always: true}, // controllers are elected by them
		{group: "discovery.k8s.io", names: "endpointslices", part: endpoints.EndpointSlices{}, cluster: true},
		{group: "certificates.k8s.io", names: "certificatesigningrequests", part: certificates.CertificateSigningRequests{}},
		{group: "certificates.k8s.io", names: "clustertrustbundles", part: certificates.ClusterTrustBundles{}},
		{group: "certificates.k8s.io", names: "podcertificaterequests", part: certificates.PodCertificateRequests{}},
		{group: "rbac.authorization.k8s.io", names: "roles rolebindings clusterroles clusterrolebindings", part: rbac.All()},
		{
			group: "admissionregistration.k8s.io", names: "mutatingwebhookconfigurations validatingwebhookconfigurations " +
				"validatingadmissionpolicies validatingadmissionpolicybindings mutatingadmissionpolicies mutatingadmissionpolicybindings",
			part: admissionregistration.All(), always: b.asks(),
		},
	}
}

// resources returns the parts of the resources that are chosen, and of those that
// other settings need.
func (b *build) resources() controlplane.Part {
	var parts controlplane.Parts
	var workloads []string // of kube, as it names them
	chosen := map[string]bool{}
	for _, word := range b.Resources {
		chosen[word] = true
	}
	named := func(word string) bool { return chosen[word] }
	known := map[string]bool{allResources: true, standardResources: true}
	for _, kind := range b.kinds() {
		words := kind.words()
		for _, word := range words {
			known[word] = true
		}
		if kind.always || chosen[allResources] || chosen[standardResources] && !kind.cluster || slices.ContainsFunc(words, named) {
			parts = append(parts, kind.part)
		}
	}
	if b.Limits.PriorityAndFairness {
		chosen["flowcontrol.apiserver.k8s.io"] = true
	}
	for _, r := range kube.Names() {
		words := served{group: r.Group, names: r.Resource}.words()
		for _, word := range words {
			known[word] = true
		}
		if chosen[allResources] || slices.ContainsFunc(words, named) {
			workloads = append(workloads, r.String())
		}
	}
	for _, word := range b.Resources {
		if !known[word] {
			b.wrong("resources", "there is no group or resource %q: want all, standard, %s", word, suggest(word, known))
		}
	}
	if len(workloads) > 0 {
		parts = append(parts, kube.Resources(workloads...))
	}
	return parts
}

// certifies tells whether certificates of lent storage are written here.
func (b *build) certifies() bool { return b.StorageAPI.Enabled && b.StorageAPI.Kubeconfig == "" }

// asks tells whether policies or webhooks are asked about writes.
func (b *build) asks() bool {
	return slices.ContainsFunc(b.plugins(), func(p Plugin) bool {
		return b.on(p) && (strings.HasSuffix(p.Name, "Policy") || strings.HasSuffix(p.Name, "Webhook"))
	})
}

// words are those that choose the kind: its group, and its names as kubectl has them.
func (s served) words() []string {
	words := []string{s.group}
	if s.group == "" {
		words[0] = "core"
	}
	for name := range strings.FieldsSeq(s.names) {
		words = append(words, schema.GroupResource{Group: s.group, Resource: name}.String())
	}
	return words
}

// suggest returns the known words that are like this one, or the groups.
func suggest(word string, known map[string]bool) string {
	var like, groups []string
	plural, _, _ := strings.Cut(word, ".")
	for k := range known {
		if name, _, _ := strings.Cut(k, "."); strings.HasPrefix(name, plural) || strings.HasPrefix(plural, name) {
			like = append(like, k)
		}
		if strings.HasSuffix(k, ".k8s.io") && strings.Count(k, ".") == 2 || !strings.Contains(k, ".") && !strings.HasSuffix(k, "s") {
			groups = append(groups, k)
		}
	}
	if len(like) == 0 {
		slices.Sort(groups)
		return strings.Join(groups, ", ") + ", or a resource such as pods or jobs.batch"
	}
	slices.Sort(like)
	return strings.Join(like, " or ")
}

// services returns the part that serves Services.
func (b *build) services() controlplane.Part {
	return core.Services{ClusterIPs: b.Services.ClusterIPs, NodePorts: b.Services.NodePorts}
}

// servers are the API servers behind this one.
func (b *build) servers() []aggregator.Server {
	var all []aggregator.Server
	for _, s := range b.Aggregation.Servers {
		all = append(all, aggregator.Server{Name: s.Name, URL: s.URL, CAFile: s.CAFile, Guard: s.Guard, Admission: s.Admission})
	}
	return all
}

// located returns the parts that find where Services run.
func (b *build) located() controlplane.Part {
	named := services.Addresses{}
	for _, a := range b.Services.Addresses {
		if named[a.Service] != "" {
			b.wrong("services.addresses", "%s is named twice", a.Service)
		}
		named[a.Service] = a.Address
	}
	if len(named) == 0 {
		return services.Resolver{}
	}
	return controlplane.Parts{named, services.Resolver{}}
}
