package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// Labels with which any ClusterRole adds its rules to a default one.
	aggregateToAdmin = "rbac.authorization.k8s.io/aggregate-to-admin"
	aggregateToEdit  = "rbac.authorization.k8s.io/aggregate-to-edit"
	aggregateToView  = "rbac.authorization.k8s.io/aggregate-to-view"
)

// Defaults returns the cluster roles and bindings that Kubernetes 1.37 starts with,
// without those of nodes, schedulers and controllers that a plane does not have.
// All are labelled to be updated at each start. admin, edit and view have no rules
// of their own: see Aggregate. Callers own the result.
func Defaults() ([]*rbacv1.ClusterRole, []*rbacv1.ClusterRoleBinding) {
	return defaultRoles(), defaultBindings()
}

func defaultRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role("cluster-admin", nil,
			on("*").groups("*").resources("*"),
			on("*").urls("*"),
		),
		// Enough to verify tokens of service accounts.
		role("system:service-account-issuer-discovery", nil, on("get").urls(
			"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/",
		)),
		// Enough to find out whether the server is ready and what it serves.
		role("system:discovery", nil, on("get").urls(
			"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/",
		)),
		// Single health checks can say more than the public should know.
		role("system:monitoring", nil, on("get").urls(
			"/flagz", "/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*", "/statusz",
		)),
		// Enough for users to learn about themselves.
		role("system:basic-user", nil,
			on("create").groups("authorization.k8s.io").resources("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
			on("create").groups("authentication.k8s.io").resources("selfsubjectreviews"),
		),
		role("system:public-info-viewer", nil, on("get").urls("/healthz", "/livez", "/readyz", "/version", "/version/")),
		// Enough for another server, such as an aggregated one, to ask who calls, what
		// they may do, and what they may create. Nobody has it until it is bound.
		role("system:auth-delegator", nil,
			on("create").groups("authentication.k8s.io").resources("tokenreviews"),
			on("create").groups("authorization.k8s.io").resources("subjectaccessreviews"),
			on("create").groups("policy.sailplane.dev").resources("createreviews"),
		),
		// Enough, with the right to update certificatesigningrequests/approval, to
		// approve client certificates.
		role("system:certificates.k8s.io:kube-apiserver-client-approver", nil,
			on("approve").groups("certificates.k8s.io").resources("signers").names("kubernetes.io/kube-apiserver-client"),
		),
		// Enough to find out whom to trust, which is no secret.
		role("system:cluster-trust-bundle-discovery", nil,
			on("get", "list", "watch").groups("certificates.k8s.io").resources("clustertrustbundles"),
		),

		// Each of the three holds what the next one holds.
		aggregated("admin", aggregateToAdmin, nil),
		aggregated("edit", aggregateToEdit, labelled(aggregateToAdmin)),
		aggregated("view", aggregateToView, labelled(aggregateToEdit)),
		role("system:aggregate-to-admin", labelled(aggregateToAdmin), adminRules()...),
		role("system:aggregate-to-edit", labelled(aggregateToEdit), editRules()...),
		role("system:aggregate-to-view", labelled(aggregateToView), viewRules()...),
	}
}

func defaultBindings() []*rbacv1.ClusterRoleBinding {
	return []*rbacv1.ClusterRoleBinding{
		bound("cluster-admin", user.SystemPrivilegedGroup),
		bound("system:monitoring", user.MonitoringGroup),
		bound("system:discovery", user.AllAuthenticated),
		bound("system:service-account-issuer-discovery", serviceaccount.AllServiceAccountsGroup),
		bound("system:cluster-trust-bundle-discovery", serviceaccount.AllServiceAccountsGroup),
		bound("system:basic-user", user.AllAuthenticated),
		bound("system:public-info-viewer", user.AllAuthenticated, user.AllUnauthenticated),
	}
}

// role is a default ClusterRole with rules of its own.
func role(name string, labels map[string]string, rules ...rule) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: defaultMeta(name, labels)}
	for _, own := range rules {
		r.Rules = append(r.Rules, rbacv1.PolicyRule(own))
	}
	return r
}

// aggregated is a default ClusterRole with the rules of all roles that have a
// label.
func aggregated(name, label string, labels map[string]string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: defaultMeta(name, labels),
		AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: labelled(label)}},
		},
	}
}

// bound is the default binding of a role to groups, with the name of the role.
func bound(name string, groups ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{
		ObjectMeta: defaultMeta(name, nil),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	for _, group := range groups {
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return b
}

func defaultMeta(name string, labels map[string]string) metav1.ObjectMeta {
	if labels == nil {
		labels = map[string]string{}
	}
	labels["kubernetes.io/bootstrapping"] = "rbac-defaults"
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      labels,
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func labelled(label string) map[string]string {
	return map[string]string{label: "true"}
}
