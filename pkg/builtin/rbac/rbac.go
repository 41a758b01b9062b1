// Package rbac has the resources of the group rbac.authorization.k8s.io (v1),
// each as a part:
//
//   - [Roles] and [ClusterRoles], rules for what may be done
//   - [RoleBindings] and [ClusterRoleBindings], which say who may
//
// and [All] of them. They are data: another part authorizes requests by them. Yet
// users cannot grant what they do not have: each part adds an admission plugin
// that refuses to write a role with rules that the user does not hold, or to bind
// one, unless the user has the permission to "escalate" the role, or to "bind" it:
//
//	apiGroups: [rbac.authorization.k8s.io]
//	resources: [clusterroles]
//	verbs: [bind]
//
// This is as in Kubernetes:
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
//
// What a user holds is read from the roles and bindings of the plane. A kind
// that the plane does not serve grants nothing.
package rbac

import (
	"context"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Roles is the part that serves roles, with the admission plugin RoleEscalation.
type Roles struct{}

// Install adds roles to the group, and the admission plugin.
func (Roles) Install(p *controlplane.Plan) error { return serve(p, defineRoles()) }

// ClusterRoles is the part that serves clusterroles, with the admission plugin
// ClusterRoleEscalation. An aggregationRule, which can gather any rules, is
// only for users that may do everything. The part does not gather them.
type ClusterRoles struct{}

// Install adds clusterroles to the group, and the admission plugin.
func (ClusterRoles) Install(p *controlplane.Plan) error { return serve(p, defineClusterRoles()) }

// RoleBindings is the part that serves rolebindings, with the admission plugin
// RoleBindingEscalation.
type RoleBindings struct{}

// Install adds rolebindings to the group, and the admission plugin.
func (RoleBindings) Install(p *controlplane.Plan) error { return serve(p, defineRoleBindings()) }

// ClusterRoleBindings is the part that serves clusterrolebindings, with the
// admission plugin ClusterRoleBindingEscalation.
type ClusterRoleBindings struct{}

// Install adds clusterrolebindings to the group, and the admission plugin.
func (ClusterRoleBindings) Install(p *controlplane.Plan) error {
	return serve(p, defineClusterRoleBindings())
}

// All is every part of the package.
func All() controlplane.Part {
	return controlplane.Parts{Roles{}, ClusterRoles{}, RoleBindings{}, ClusterRoleBindings{}}
}

// The names of the resources that can be bound.
const (
	roles        = "roles"
	clusterRoles = "clusterroles"
)

// shared is the group, made once per process: its scheme and definitions are
// the same for every plane.
var shared = sync.OnceValue(func() *apis.Group {
	return apis.NewGroup(rbacv1.SchemeGroupVersion, rbacv1.AddToScheme, rbacDefinitions,
		defineRoles(), defineClusterRoles(), defineRoleBindings(), defineClusterRoleBindings())
})

// serve adds one resource of the group to a plane, and its guard.
func serve(p *controlplane.Plan, d *apis.Definition) error {
	p.Admit(d.Kind()+"Escalation", newGuard(d.Name()))
	return shared().Serve(p, d)
}

// options are what all resources of the group have in common.
func options(more ...apis.Option) []apis.Option {
	return append(more, apis.NameValidation(pathSegment), apis.NoGeneration(), apis.CreateOnUpdate())
}

func defineRoles() *apis.Definition {
	return apis.Resource[rbacv1.Role, rbacv1.RoleList](roles, options(apis.Validate(validateRole))...)
}

func defineClusterRoles() *apis.Definition {
	return apis.Resource[rbacv1.ClusterRole, rbacv1.ClusterRoleList](clusterRoles,
		options(apis.ClusterScoped(), apis.Validate(validateClusterRole))...)
}

func defineRoleBindings() *apis.Definition {
	return apis.Resource[rbacv1.RoleBinding, rbacv1.RoleBindingList]("rolebindings", options(
		apis.Default(func(b *rbacv1.RoleBinding) { fillIn(&b.RoleRef, b.Subjects) }),
		apis.Validate(validateRoleBinding),
		apis.ValidateUpdate(func(_ context.Context, b, old *rbacv1.RoleBinding) field.ErrorList {
			return validateSameRole(b.RoleRef, old.RoleRef)
		}),
		apis.Columns(func(b *rbacv1.RoleBinding) []any { return row(b.RoleRef, b.Subjects) },
			columns("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"])...),
	)...)
}

func defineClusterRoleBindings() *apis.Definition {
	return apis.Resource[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList]("clusterrolebindings", options(
		apis.ClusterScoped(),
		apis.Default(func(b *rbacv1.ClusterRoleBinding) { fillIn(&b.RoleRef, b.Subjects) }),
		apis.Validate(validateClusterRoleBinding),
		apis.ValidateUpdate(func(_ context.Context, b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
			return validateSameRole(b.RoleRef, old.RoleRef)
		}),
		apis.Columns(func(b *rbacv1.ClusterRoleBinding) []any { return row(b.RoleRef, b.Subjects) },
			columns("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"])...),
	)...)
}

// pathSegment allows any name that can stand in a path, "system:masters".
func pathSegment(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// fillIn names the API groups that were left out.
func fillIn(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func columns(kind, role string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Role", Type: "string", Description: role},
		{Name: "Users", Type: "string", Priority: 1, Description: "Users in the " + kind},
		{Name: "Groups", Type: "string", Priority: 1, Description: "Groups in the " + kind},
		{Name: "ServiceAccounts", Type: "string", Priority: 1, Description: "ServiceAccounts in the " + kind},
	}
}

func row(ref rbacv1.RoleRef, subjects []rbacv1.Subject) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{ref.Kind + "/" + ref.Name, strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", ")}
}
