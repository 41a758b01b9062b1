package manifest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// TestOrder has what others need before them, and what could refuse them after them.
func TestOrder(t *testing.T) {
	want := []string{
		"Namespace", "CustomResourceDefinition.apiextensions.k8s.io", "ServiceAccount", "Secret", "ConfigMap",
		"ClusterRole.rbac.authorization.k8s.io", "Role.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io",
		"RoleBinding.rbac.authorization.k8s.io", "Deployment.apps", "Gateway.gateway.networking.k8s.io", "Service", "Gadget.example.com",
		"LimitRange", "ResourceQuota", "ValidatingAdmissionPolicy.admissionregistration.k8s.io",
		"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io", "MutatingWebhookConfiguration.admissionregistration.k8s.io",
		"APIService.apiregistration.k8s.io",
	}
	var all []served.Resource
	for i := range want {
		kind := schema.ParseGroupKind(want[len(want)-1-i])
		r := served.Resource{Kind: kind.Kind}
		r.Group, r.Resource = kind.Group, strings.ToLower(kind.Kind)+"s"
		all = append(all, r)
	}
	inOrder(all)
	for i, r := range all {
		if got := kindOf(r).String(); got != want[i] {
			t.Errorf("number %d is %s, want %s", i, got, want[i])
		}
	}
}

// TestWanted leaves out what passes, unless it is named.
func TestWanted(t *testing.T) {
	cases := map[string]struct {
		resource              string
		namespaced            bool
		resources, namespaces []string
		want                  bool
	}{
		"stored":                 {"secrets", true, nil, nil, true},
		"passing":                {"certificatesigningrequests.certificates.k8s.io", false, nil, nil, false},
		"passing and named":      {"events", true, []string{"events"}, nil, true},
		"passing, in a pattern":  {"events", true, []string{"*."}, nil, false},
		"others of the name":     {"events.example.com", true, nil, nil, true},
		"in namespaces":          {"secrets", true, nil, []string{"a"}, true},
		"in none":                {"clusterroles.rbac.authorization.k8s.io", false, nil, []string{"a"}, false},
		"the namespaces":         {"namespaces", false, nil, []string{"a"}, true},
		"namespaces of somebody": {"namespaces.example.com", false, nil, []string{"a"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := &Export{Resources: c.resources, Namespaces: c.namespaces}
			r := served.Resource{GroupVersionResource: schema.ParseGroupResource(c.resource).WithVersion("v1"), Namespaced: c.namespaced}
			if got := e.wanted(r); got != c.want {
				t.Errorf("wanted: %v", got)
			}
		})
	}
}
