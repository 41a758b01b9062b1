package rbac_test

import (
	"maps"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// store is a Reader of what a test puts into it, and returns it all.
type store struct {
	roles           []*rbacv1.Role
	clusterRoles    []*rbacv1.ClusterRole
	bindings        map[string][]*rbacv1.RoleBinding
	clusterBindings []*rbacv1.ClusterRoleBinding
	err             error // of both lists
}

func (s *store) Role(namespace, name string) (*rbacv1.Role, error) {
	for _, role := range s.roles {
		if role.Namespace == namespace && role.Name == name {
			return role, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("role"), name)
}

func (s *store) ClusterRole(name string) (*rbacv1.ClusterRole, error) {
	for _, role := range s.clusterRoles {
		if role.Name == name {
			return role, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("clusterrole"), name)
}

// Bindings returns those of everybody.
func (s *store) Bindings(namespace string, _ rbac.Key) ([]*rbacv1.RoleBinding, error) {
	if namespace != "" {
		return s.bindings[namespace], s.err
	}
	var all []*rbacv1.RoleBinding
	for _, b := range s.clusterBindings {
		all = append(all, (*rbacv1.RoleBinding)(b))
	}
	return all, s.err
}

// indexed is a store that knows whose bindings are whose, as a cache does.
type indexed struct {
	rbac.Reader
	err      error
	bindings map[string]map[rbac.Key][]*rbacv1.RoleBinding
}

func index(s *store) *indexed {
	x := &indexed{Reader: s, err: s.err, bindings: map[string]map[rbac.Key][]*rbacv1.RoleBinding{}}
	namespaces := maps.Clone(s.bindings)
	if namespaces == nil {
		namespaces = map[string][]*rbacv1.RoleBinding{}
	}
	namespaces[""], _ = s.Bindings("", rbac.Key{})
	for namespace, bindings := range namespaces {
		of := map[rbac.Key][]*rbacv1.RoleBinding{}
		for _, b := range bindings {
			for _, key := range rbac.Keys(b.Subjects, namespace) {
				of[key] = append(of[key], b)
			}
		}
		x.bindings[namespace] = of
	}
	return x
}

func (x *indexed) Bindings(namespace string, key rbac.Key) ([]*rbacv1.RoleBinding, error) {
	return x.bindings[namespace][key], x.err
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func clusterBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

func binding(namespace, name, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   subjects,
	}
}

func aUser(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func aGroup(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

func anAccount(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// list splits on commas, so that a table's rules fit on a line. "-" is the
// core group.
func list(text string) []string {
	parts := strings.Split(text, ",")
	for i := range parts {
		if parts[i] == "-" {
			parts[i] = ""
		}
	}
	return parts
}

// rule is a rule for resources: verbs, groups, resources, and maybe names.
func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: list(verbs), APIGroups: list(groups), Resources: list(resources), ResourceNames: names}
}

func urls(verbs, urls string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: list(verbs), NonResourceURLs: list(urls)}
}
