package rbac_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

func TestRulesMatch(t *testing.T) {
	t.Parallel()
	pods := authorizer.AttributesRecord{Verb: "get", Resource: "pods", Name: "web", Namespace: "shop", ResourceRequest: true}
	with := func(change func(*authorizer.AttributesRecord)) authorizer.AttributesRecord {
		a := pods
		change(&a)
		return a
	}
	path := func(verb, path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, Path: path}
	}
	for name, tc := range map[string]struct {
		reason string
		rule   rbacv1.PolicyRule
		asked  authorizer.AttributesRecord
		want   bool
	}{
		"exact":            {"verb, group and resource are what is asked", rule("get", "-", "pods"), pods, true},
		"other verb":       {"a rule speaks of its verbs only", rule("list", "-", "pods"), pods, false},
		"all verbs":        {"* is every verb", rule("*", "-", "pods"), pods, true},
		"other group":      {"the same name in another group is another resource", rule("get", "apps", "pods"), pods, false},
		"all groups":       {"* is every group", rule("get", "*", "pods"), pods, true},
		"no group":         {"a rule without groups allows no resource", rbacv1.PolicyRule{Verbs: list("get"), Resources: list("pods")}, pods, false},
		"other resource":   {"a rule speaks of its resources only", rule("get", "-", "services"), pods, false},
		"all resources":    {"* is every resource", rule("get", "-", "*"), pods, true},
		"one of many":      {"any verb, group and resource of a rule go together", rule("list,get", "apps,-", "services,pods"), pods, true},
		"prefix of a name": {"names are compared whole", rule("get", "-", "pod"), pods, false},
		"rule for URLs":    {"URLs say nothing of resources", urls("*", "*"), pods, false},
		"selectors ignored": {"a list by field is a list", rule("list", "-", "pods"), with(func(a *authorizer.AttributesRecord) {
			a.Verb = "list"
			a.Name = ""
			a.FieldSelectorRequirements = fields.Requirements{{Field: "a"}}
		}), true},

		"subresource":                  {"a subresource is named with its resource", rule("get", "-", "pods/log"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), true},
		"subresource of resource":      {"a resource does not include its subresources", rule("get", "-", "pods"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), false},
		"resource of subresource":      {"a subresource does not include its resource", rule("get", "-", "pods/log"), pods, false},
		"other subresource":            {"a rule speaks of its subresources only", rule("get", "-", "pods/exec"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), false},
		"subresource of all":           {"*/log is log of every resource", rule("get", "-", "*/log"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), true},
		"other subresource of all":     {"*/scale is scale only", rule("get", "-", "*/scale"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), false},
		"subresource of all, resource": {"*/log is no resource", rule("get", "-", "*/log"), pods, false},
		"all with subresource":         {"* includes subresources", rule("get", "-", "*"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), true},
		"all subresources of one":      {"pods/* means nothing special", rule("get", "-", "pods/*"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), false},
		"subresource is a suffix":      {"subresources are compared whole", rule("get", "-", "pods/blog"), with(func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), false},

		"name":                {"a rule may name its objects", rule("get", "-", "pods", "db", "web"), pods, true},
		"other name":          {"and speaks of no other then", rule("get", "-", "pods", "db"), pods, false},
		"name of all":         {"* is no wildcard for names", rule("get", "-", "pods", "*"), pods, false},
		"create with names":   {"the name of what is created is not known when it is asked", rule("create", "-", "pods", "web"), with(func(a *authorizer.AttributesRecord) { a.Verb = "create"; a.Name = "" }), false},
		"list with names":     {"a list of everything has no name", rule("list", "-", "pods", "web"), with(func(a *authorizer.AttributesRecord) { a.Verb = "list"; a.Name = "" }), false},
		"list of one by name": {"a list with metadata.name=web has one", rule("list", "-", "pods", "web"), with(func(a *authorizer.AttributesRecord) { a.Verb = "list" }), true},

		"url":                   {"a URL is what is asked", urls("get", "/healthz"), path("get", "/healthz"), true},
		"url below":             {"a URL does not include those below it", urls("get", "/healthz"), path("get", "/healthz/etcd"), false},
		"url beginning":         {"a * at the end includes them", urls("get", "/healthz/*"), path("get", "/healthz/etcd"), true},
		"url itself":            {"but not what stands before the slash", urls("get", "/healthz/*"), path("get", "/healthz"), false},
		"url within":            {"a * is no wildcard elsewhere", urls("get", "/*/etcd"), path("get", "/healthz/etcd"), false},
		"all urls":              {"* alone is every URL", urls("get", "*"), path("get", "/anything"), true},
		"url, other verb":       {"verbs count for URLs too", urls("get", "*"), path("post", "/anything"), false},
		"rule for resources":    {"resources say nothing of URLs", rule("*", "*", "*"), path("get", "/healthz"), false},
		"resource behind a URL": {"requests for resources are not asked by path", urls("get", "/api/*"), with(func(a *authorizer.AttributesRecord) { a.Path = "/api/v1/pods" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := rbac.New(&store{
				clusterRoles:    []*rbacv1.ClusterRole{clusterRole("r", tc.rule)},
				clusterBindings: []*rbacv1.ClusterRoleBinding{clusterBinding("b", "r", aUser("ann"))},
			})
			tc.asked.User = &user.DefaultInfo{Name: "ann"}
			got, why, err := a.Authorize(t.Context(), tc.asked)
			if err != nil {
				t.Fatal(err)
			}
			want := authorizer.DecisionNoOpinion
			if tc.want {
				want = authorizer.DecisionAllow
			}
			if got != want {
				t.Errorf("%s: got %v (%q), want %v", tc.reason, got, why, want)
			}
		})
	}
}

// getPods is bound in several ways by the tests of subjects and reasons.
func getPods(namespace string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: "get", Resource: "pods", Name: "web", Namespace: namespace, ResourceRequest: true}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	account := &user.DefaultInfo{Name: "system:serviceaccount:shop:bot", Groups: []string{"system:serviceaccounts"}}
	for name, tc := range map[string]struct {
		reason    string
		user      *user.DefaultInfo
		namespace string
		cluster   []*rbacv1.ClusterRoleBinding
		local     []*rbacv1.RoleBinding // of namespace shop
		want      string                // the reason of the decision
		allowed   bool
	}{
		"user": {
			"users are known by name", &user.DefaultInfo{Name: "ann"}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", aUser("bob"), aUser("ann"))},
			nil,
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "pods" to User "ann"`, true,
		},
		"group": {
			"groups are known by name", &user.DefaultInfo{Name: "ann", Groups: []string{"devs", "ops"}}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", aGroup("ops"))},
			nil,
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "pods" to Group "ops"`, true,
		},
		"user named like a group": {
			"kinds are not mixed up", &user.DefaultInfo{Name: "ops"}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", aGroup("ops"))},
			nil, "", false,
		},
		"group named like a user": {
			"kinds are not mixed up", &user.DefaultInfo{Name: "ann", Groups: []string{"bob"}}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", aUser("bob"))},
			nil, "", false,
		},
		"unknown kind": {
			"a subject of an unknown kind is nobody", &user.DefaultInfo{Name: "ann"}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", rbacv1.Subject{Kind: "Team", Name: "ann"})},
			nil, "", false,
		},
		"account": {
			"a service account is a user with a long name", account, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", anAccount("shop", "bot"))},
			nil,
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "pods" to ServiceAccount "bot/shop"`, true,
		},
		"account by its user name": {
			"which a binding may also use", account, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", aUser("system:serviceaccount:shop:bot"))},
			nil,
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "pods" to User "system:serviceaccount:shop:bot"`, true,
		},
		"account of another namespace": {
			"accounts are known by namespace and name", account, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", anAccount("bank", "bot"))},
			nil, "", false,
		},
		"account of no namespace, cluster-wide": {
			"without a namespace there is no account", account, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "pods", anAccount("", "bot"))},
			nil, "", false,
		},
		"account of no namespace": {
			"a binding of a namespace may leave out its own", account, "shop", nil,
			[]*rbacv1.RoleBinding{binding("shop", "b", "ClusterRole", "pods", anAccount("", "bot"))},
			`RBAC: allowed by RoleBinding "b/shop" of ClusterRole "pods" to ServiceAccount "bot/shop"`, true,
		},
		"role": {
			"a binding of a namespace may be of one of its roles", &user.DefaultInfo{Name: "ann"}, "shop", nil,
			[]*rbacv1.RoleBinding{binding("shop", "b", "Role", "local", aUser("ann"))},
			`RBAC: allowed by RoleBinding "b/shop" of Role "local" to User "ann"`, true,
		},
		"other namespace": {
			"a binding of a namespace is for that one only", &user.DefaultInfo{Name: "ann"}, "bank", nil,
			[]*rbacv1.RoleBinding{binding("shop", "b", "Role", "local", aUser("ann"))},
			"", false,
		},
		"no namespace": {
			"and not for the whole plane", &user.DefaultInfo{Name: "ann"}, "", nil,
			[]*rbacv1.RoleBinding{binding("shop", "b", "Role", "local", aUser("ann"))},
			"", false,
		},
		"role is missing": {
			"a missing role is the reason, and no error", &user.DefaultInfo{Name: "ann"}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "gone", aUser("ann"))},
			nil,
			`RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`, false,
		},
		"roles are missing": {
			"all of them", &user.DefaultInfo{Name: "ann"}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "gone", aUser("ann"))},
			[]*rbacv1.RoleBinding{binding("shop", "b", "Role", "lost", aUser("ann"))},
			`RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "lost" not found]`, false,
		},
		"role of somebody else is missing": {
			"what is missing for others is not their concern", &user.DefaultInfo{Name: "ann"}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("b", "gone", aUser("bob"))},
			nil, "", false,
		},
		"role is missing beside one that allows": {
			"a missing role takes nothing away", &user.DefaultInfo{Name: "ann"}, "shop",
			[]*rbacv1.ClusterRoleBinding{clusterBinding("a", "gone", aUser("ann")), clusterBinding("b", "pods", aUser("ann"))},
			nil,
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "pods" to User "ann"`, true,
		},
		"kind of role is unknown": {
			"a reference to anything but a role is the reason", &user.DefaultInfo{Name: "ann"}, "shop", nil,
			[]*rbacv1.RoleBinding{binding("shop", "b", "Team", "x", aUser("ann"))},
			`RBAC: unsupported role reference kind: "Team"`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &store{
				roles:           []*rbacv1.Role{{Rules: []rbacv1.PolicyRule{rule("get", "-", "pods")}}},
				clusterRoles:    []*rbacv1.ClusterRole{clusterRole("pods", rule("get", "-", "pods"))},
				clusterBindings: tc.cluster,
				bindings:        map[string][]*rbacv1.RoleBinding{"shop": tc.local},
			}
			s.roles[0].Namespace, s.roles[0].Name = "shop", "local"
			asked := getPods(tc.namespace)
			asked.User = tc.user
			for how, reader := range map[string]rbac.Reader{"list": s, "index": index(s)} {
				decision, why, err := rbac.New(reader).Authorize(t.Context(), asked)
				if err != nil {
					t.Fatal(err)
				}
				if allowed := decision == authorizer.DecisionAllow; allowed != tc.allowed || decision == authorizer.DecisionDeny {
					t.Errorf("%s (%s): got %v", tc.reason, how, decision)
				}
				if diff := cmp.Diff(tc.want, why); diff != "" {
					t.Errorf("%s (%s): reason (-want, +got):\n%s", tc.reason, how, diff)
				}
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := &store{err: errors.New("cache is not filled")}
	asked := getPods("shop")
	asked.User = &user.DefaultInfo{Name: "ann", Groups: []string{"devs"}}
	for how, reader := range map[string]rbac.Reader{"list": s, "index": index(s)} {
		decision, why, err := rbac.New(reader).Authorize(t.Context(), asked)
		if decision != authorizer.DecisionNoOpinion || why != "RBAC: cache is not filled" || err != nil {
			t.Errorf("%s: got %v, %q, %v", how, decision, why, err)
		}
	}
}

func TestNobody(t *testing.T) {
	t.Parallel()
	decision, why, err := rbac.New(&store{}).Authorize(t.Context(), getPods("shop"))
	if decision != authorizer.DecisionNoOpinion || why != "" || err != nil {
		t.Errorf("a request without a user: got %v, %q, %v", decision, why, err)
	}
}

func TestRulesFor(t *testing.T) {
	t.Parallel()
	s := &store{
		clusterRoles: []*rbacv1.ClusterRole{
			clusterRole("look", rule("get,list", "apps", "deployments", "web"), urls("get", "/healthz")),
			clusterRole("change", rule("create", "-", "pods")),
		},
		clusterBindings: []*rbacv1.ClusterRoleBinding{
			clusterBinding("both", "look", aUser("ann"), aGroup("devs"), aGroup("ops")),
			clusterBinding("broken", "gone", aUser("ann")),
		},
		bindings: map[string][]*rbacv1.RoleBinding{"shop": {binding("shop", "b", "ClusterRole", "change", aGroup("devs"), aGroup("ops"))}},
	}
	ann := &user.DefaultInfo{Name: "ann", Groups: []string{"devs", "ops"}}
	wantResources := []authorizer.ResourceRuleInfo{
		&authorizer.DefaultResourceRuleInfo{Verbs: list("get,list"), APIGroups: list("apps"), Resources: list("deployments"), ResourceNames: list("web")},
		&authorizer.DefaultResourceRuleInfo{Verbs: list("create"), APIGroups: list("-"), Resources: list("pods")},
	}
	wantURLs := []authorizer.NonResourceRuleInfo{
		&authorizer.DefaultNonResourceRuleInfo{Verbs: list("get"), NonResourceURLs: list("/healthz")},
	}
	for how, reader := range map[string]rbac.Reader{"list": s, "index": index(s)} {
		resources, urls, incomplete, err := rbac.New(reader).RulesFor(t.Context(), ann, "shop")
		if diff := cmp.Diff(wantResources, resources); diff != "" {
			t.Errorf("%s: a binding counts once, however many subjects apply (-want, +got):\n%s", how, diff)
		}
		if diff := cmp.Diff(wantURLs, urls); diff != "" {
			t.Errorf("%s: URLs (-want, +got):\n%s", how, diff)
		}
		if incomplete {
			t.Errorf("%s: rules are all there is to know", how)
		}
		if err == nil || err.Error() != `clusterrole.rbac.authorization.k8s.io "gone" not found` {
			t.Errorf("%s: what could not be read is the error: got %v", how, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	subjects := []rbacv1.Subject{aUser("ann"), aGroup("devs"), anAccount("", "bot"), anAccount("bank", "bot"), {Kind: "Team", Name: "x"}}
	for name, tc := range map[string]struct {
		reason    string
		namespace string
		want      []rbac.Key
	}{
		"namespace": {
			"an account without a namespace is of the binding's", "shop",
			[]rbac.Key{{"User", "ann"}, {"Group", "devs"}, {"User", "system:serviceaccount:shop:bot"}, {"User", "system:serviceaccount:bank:bot"}},
		},
		"cluster-wide": {
			"which is nobody where there is none", "",
			[]rbac.Key{{"User", "ann"}, {"Group", "devs"}, {"User", "system:serviceaccount:bank:bot"}},
		},
	} {
		if diff := cmp.Diff(tc.want, rbac.Keys(subjects, tc.namespace)); diff != "" {
			t.Errorf("%s: %s (-want, +got):\n%s", name, tc.reason, diff)
		}
	}
}
