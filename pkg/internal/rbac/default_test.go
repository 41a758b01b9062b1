package rbac_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// started is a store with the defaults, aggregated until nothing changes.
func started(t *testing.T) *store {
	t.Helper()
	roles, bindings := rbac.Defaults()
	for range len(roles) {
		for _, role := range roles {
			if role.AggregationRule == nil {
				continue
			}
			rules, err := rbac.Aggregate(role.AggregationRule.ClusterRoleSelectors, roles, role.Name)
			if err != nil {
				t.Fatal(err)
			}
			role.Rules = rules
		}
	}
	return &store{clusterRoles: roles, clusterBindings: bindings, bindings: map[string][]*rbacv1.RoleBinding{}}
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	roles, bindings := rbac.Defaults()
	var names []string
	for _, role := range roles {
		names = append(names, role.Name)
		if errs := content.IsPathSegmentName(role.Name); len(errs) > 0 {
			t.Errorf("role %q: name: %v", role.Name, errs)
		}
		if role.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" || role.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
			t.Errorf("role %q: labels %v, annotations %v", role.Name, role.Labels, role.Annotations)
		}
		if (len(role.Rules) == 0) != (role.AggregationRule != nil) {
			t.Errorf("role %q: has either rules or an aggregation", role.Name)
		}
		for i, r := range role.Rules {
			resources, urls := len(r.Resources) > 0 && len(r.APIGroups) > 0, len(r.NonResourceURLs) > 0
			if len(r.Verbs) == 0 || resources == urls || (urls && len(r.APIGroups) > 0) {
				t.Errorf("role %q: rule %d is neither for resources nor for URLs: %v", role.Name, i, r)
			}
			for _, values := range [][]string{r.APIGroups, r.Resources, r.NonResourceURLs} {
				if !slices.IsSorted(values) || len(slices.Compact(slices.Clone(values))) != len(values) {
					t.Errorf("role %q: rule %d: sorted and once, as Kubernetes lists them: %v", role.Name, i, values)
				}
			}
		}
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name occurs twice: %v", names)
	}
	for _, b := range bindings {
		if !slices.Contains(names, b.RoleRef.Name) || b.RoleRef.Kind != "ClusterRole" || b.RoleRef.APIGroup != rbacv1.GroupName {
			t.Errorf("binding %q: of no default role: %v", b.Name, b.RoleRef)
		}
		if b.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" || b.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
			t.Errorf("binding %q: labels %v, annotations %v", b.Name, b.Labels, b.Annotations)
		}
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.GroupKind || s.APIGroup != rbacv1.GroupName || !strings.HasPrefix(s.Name, "system:") {
				t.Errorf("binding %q: subject %v", b.Name, s)
			}
		}
	}
}

func TestDefaultsAreOwnedByTheCaller(t *testing.T) {
	t.Parallel()
	roles, bindings := rbac.Defaults()
	for _, role := range roles {
		role.Labels["x"] = "y"
		for i := range role.Rules {
			role.Rules[i].Verbs[0] = "changed"
		}
	}
	bindings[0].Subjects[0].Name = "changed"
	again, _ := rbac.Defaults()
	for _, role := range again {
		for _, r := range role.Rules {
			if slices.Contains(r.Verbs, "changed") || role.Labels["x"] != "" {
				t.Errorf("role %q: was changed through another copy", role.Name)
			}
		}
	}
}

func TestDefaultsContainEachOther(t *testing.T) {
	t.Parallel()
	s := started(t)
	rules := func(name string) []rbacv1.PolicyRule {
		role, err := s.ClusterRole(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(role.Rules) == 0 {
			t.Fatalf("role %q: has no rules once aggregated", name)
		}
		return role.Rules
	}
	for _, tc := range []struct{ more, less string }{
		{"cluster-admin", "admin"},
		{"cluster-admin", "system:monitoring"},
		{"admin", "edit"},
		{"edit", "view"},
		{"system:discovery", "system:public-info-viewer"},
	} {
		if covered, missing := validation.Covers(rules(tc.more), rules(tc.less)); !covered {
			t.Errorf("%s holds what %s holds: lacks %v", tc.more, tc.less, missing)
		}
		if covered, _ := validation.Covers(rules(tc.less), rules(tc.more)); covered {
			t.Errorf("%s holds less than %s", tc.less, tc.more)
		}
	}
	escalating := []rbacv1.PolicyRule{
		rule("get", "-", "secrets"), rule("get", rbacv1.GroupName, "roles"),
		rule("create", "-", "serviceaccounts/token"), rule("impersonate", "-", "serviceaccounts"),
	}
	_, missing := validation.Covers(rules("view"), escalating)
	if diff := cmp.Diff(escalating, missing); diff != "" {
		t.Errorf("viewers cannot become more (-want, +got):\n%s", diff)
	}
}

func TestDefaultsDecide(t *testing.T) {
	t.Parallel()
	s := started(t)
	s.bindings["shop"] = []*rbacv1.RoleBinding{
		binding("shop", "admins", "ClusterRole", "admin", aUser("admin")),
		binding("shop", "editors", "ClusterRole", "edit", aUser("editor")),
		binding("shop", "viewers", "ClusterRole", "view", aUser("viewer")),
	}
	s.clusterBindings = append(s.clusterBindings,
		clusterBinding("aggregated", "system:auth-delegator", aUser("aggregated")),
		clusterBinding("approver", "system:certificates.k8s.io:kube-apiserver-client-approver", aUser("approver")))
	a := rbac.New(s)
	known := []string{user.AllAuthenticated}
	root := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	named := func(name string) *user.DefaultInfo { return &user.DefaultInfo{Name: name, Groups: known} }
	url := func(path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "get", Path: path}
	}
	on := func(verb, group, resource, namespace string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, APIGroup: group, Resource: resource, Namespace: namespace, ResourceRequest: true}
	}
	signer := on("approve", "certificates.k8s.io", "signers", "")
	signer.Name = "kubernetes.io/kube-apiserver-client"
	other := signer
	other.Name = "kubernetes.io/kubelet-serving"
	for name, tc := range map[string]struct {
		reason string
		user   user.Info
		asked  authorizer.AttributesRecord
		want   bool
	}{
		"root, anything":       {"masters may do everything", root, on("frobnicate", "example.com", "widgets", ""), true},
		"root, URL":            {"masters may ask for every URL", root, url("/debug/pprof"), true},
		"anonymous, version":   {"the version is public", anonymous, url("/version"), true},
		"anonymous, readyz":    {"so is readiness", anonymous, url("/readyz"), true},
		"anonymous, one check": {"but not each check", anonymous, url("/readyz/etcd"), false},
		"anonymous, apis":      {"nor what is served", anonymous, url("/apis"), false},
		"known, apis":          {"which users may know", named("ann"), url("/apis/apps/v1"), true},
		"known, openapi":       {"as they may know its schema", named("ann"), url("/openapi/v3"), true},
		"known, metrics":       {"metrics are not for all", named("ann"), url("/metrics"), false},
		"monitor, metrics":     {"but for those who monitor", &user.DefaultInfo{Name: "prometheus", Groups: []string{user.MonitoringGroup}}, url("/metrics"), true},
		"known, who am I":      {"users may learn who they are", named("ann"), on("create", "authentication.k8s.io", "selfsubjectreviews", ""), true},
		"known, others":        {"but not about others", named("ann"), on("create", "authorization.k8s.io", "subjectaccessreviews", ""), false},
		"server, tokens":       {"another server asks who calls", named("aggregated"), on("create", "authentication.k8s.io", "tokenreviews", ""), true},
		"server, rights":       {"and what they may do", named("aggregated"), on("create", "authorization.k8s.io", "subjectaccessreviews", ""), true},
		"server, pods":         {"and nothing more", named("aggregated"), on("list", "", "pods", "shop"), false},
		"approver, clients":    {"for the signer of client certificates", named("approver"), signer, true},
		"approver, others":     {"and no other", named("approver"), other, false},
		"known, tokens":        {"nobody has it unbound", named("ann"), on("create", "authentication.k8s.io", "tokenreviews", ""), false},
		"known, pods":          {"and nothing else without a binding", named("ann"), on("list", "", "pods", "shop"), false},
		"viewer, deployments":  {"viewers see", named("viewer"), on("watch", "apps", "deployments", "shop"), true},
		"viewer, change":       {"and change nothing", named("viewer"), on("update", "apps", "deployments", "shop"), false},
		"viewer, elsewhere":    {"in their namespace only", named("viewer"), on("watch", "apps", "deployments", "bank"), false},
		"editor, deployments":  {"editors change", named("editor"), on("patch", "apps", "deployments", "shop"), true},
		"editor, secrets":      {"and read secrets", named("editor"), on("get", "", "secrets", "shop"), true},
		"editor, endpoints":    {"but lead no traffic elsewhere", named("editor"), on("update", "", "endpoints", "shop"), false},
		"editor, roles":        {"nor let others in", named("editor"), on("create", rbacv1.GroupName, "rolebindings", "shop"), false},
		"admin, roles":         {"which administrators do", named("admin"), on("create", rbacv1.GroupName, "rolebindings", "shop"), true},
		"admin, quota":         {"whose limits the plane sets", named("admin"), on("update", "", "resourcequotas", "shop"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.asked.User = tc.user
			got, why, err := a.Authorize(t.Context(), tc.asked)
			if err != nil {
				t.Fatal(err)
			}
			if (got == authorizer.DecisionAllow) != tc.want {
				t.Errorf("%s: got %v (%q)", tc.reason, got, why)
			}
		})
	}
}
