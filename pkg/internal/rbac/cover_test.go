package rbac_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

func TestCovers(t *testing.T) {
	t.Parallel()
	type rules = []rbacv1.PolicyRule
	emptyURL := rbacv1.PolicyRule{Verbs: list("get"), NonResourceURLs: []string{""}}
	for name, tc := range map[string]struct {
		reason        string
		owner, wanted rules
		want          rules
	}{
		"nothing":          {"nothing is always held", nil, nil, nil},
		"nothing held":     {"and else nothing", nil, rules{rule("get", "-", "pods")}, rules{rule("get", "-", "pods")}},
		"same":             {"a rule covers itself", rules{rule("get,list", "-,apps", "pods")}, rules{rule("get,list", "-,apps", "pods")}, nil},
		"subset":           {"and less than itself", rules{rule("get,list", "-,apps", "pods,services")}, rules{rule("list", "-", "services")}, nil},
		"several together": {"rules of an owner add up", rules{rule("get", "-", "pods"), rule("list", "-", "pods")}, rules{rule("get,list", "-", "pods")}, nil},
		"what is missing": {
			"what is left is split to the smallest",
			rules{rule("get", "-", "pods")},
			rules{rule("get,list", "-", "pods,services")},
			rules{rule("list", "-", "pods"), rule("get", "-", "services"), rule("list", "-", "services")},
		},
		"all verbs":          {"* holds every verb", rules{rule("*", "-", "pods")}, rules{rule("get,*", "-", "pods")}, nil},
		"all verbs wanted":   {"every verb of today is not *", rules{rule("get,list", "-", "pods")}, rules{rule("*", "-", "pods")}, rules{rule("*", "-", "pods")}},
		"all groups":         {"* holds every group", rules{rule("get", "*", "pods")}, rules{rule("get", "apps", "pods")}, nil},
		"all groups wanted":  {"a group is not *", rules{rule("get", "apps", "pods")}, rules{rule("get", "*", "pods")}, rules{rule("get", "*", "pods")}},
		"all resources":      {"* holds resources and subresources", rules{rule("get", "-", "*")}, rules{rule("get", "-", "pods,pods/log,*,*/log")}, nil},
		"subresource of all": {"*/scale holds scale of each", rules{rule("get", "-", "*/scale")}, rules{rule("get", "-", "pods/scale,*/scale,pods")}, rules{rule("get", "-", "pods")}},
		"scale of all":       {"scale of one is not scale of all", rules{rule("get", "-", "pods/scale")}, rules{rule("get", "-", "*/scale")}, rules{rule("get", "-", "*/scale")}},
		"subresource":        {"a resource does not hold its subresources", rules{rule("get", "-", "pods")}, rules{rule("get", "-", "pods/log")}, rules{rule("get", "-", "pods/log")}},
		"subresources":       {"pods/* is held as it is written only", rules{rule("get", "-", "pods/*")}, rules{rule("get", "-", "pods/*,pods/log")}, rules{rule("get", "-", "pods/log")}},
		"names":              {"a rule without names holds all of them", rules{rule("get", "-", "pods")}, rules{rule("get", "-", "pods", "a", "b")}, nil},
		"names missing":      {"a name holds no other", rules{rule("get", "-", "pods", "a")}, rules{rule("get", "-", "pods", "a", "b")}, rules{rule("get", "-", "pods", "b")}},
		"all names wanted":   {"names do not hold all objects", rules{rule("get", "-", "pods", "a")}, rules{rule("get", "-", "pods")}, rules{rule("get", "-", "pods")}},
		"names, two rules":   {"names of several rules add up", rules{rule("get", "-", "pods", "a"), rule("get", "-", "pods", "b")}, rules{rule("get", "-", "pods", "a", "b")}, nil},
		"urls":               {"a URL holds itself", rules{urls("get", "/a,/b")}, rules{urls("get", "/b")}, nil},
		"urls below":         {"a * at the end holds what it begins", rules{urls("get", "/a/*")}, rules{urls("get", "/a/b,/a/b/*,/a,/*")}, rules{urls("get", "/a"), urls("get", "/*")}},
		"urls, verbs":        {"verbs count for URLs too", rules{urls("get", "*")}, rules{urls("get,post", "/a")}, rules{urls("post", "/a")}},
		"urls, resources":    {"all resources are no URLs", rules{rule("*", "*", "*")}, rules{urls("get", "/a"), emptyURL}, rules{urls("get", "/a"), emptyURL}},
		"resources, urls":    {"all URLs are no resources", rules{urls("*", "*")}, rules{rule("get", "-", "pods")}, rules{rule("get", "-", "pods")}},
		"without verbs":      {"a rule without verbs allows nothing", nil, rules{{APIGroups: list("-"), Resources: list("pods")}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, rbac.Covers(tc.owner, tc.wanted)); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}
