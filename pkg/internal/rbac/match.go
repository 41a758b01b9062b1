package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// subject is a user as bindings name one.
type subject struct {
	name   string
	groups []string
}

func whoIs(u user.Info) subject {
	return subject{name: u.GetName(), groups: u.GetGroups()}
}

// keys is how many keys somebody has: the name and the groups.
func (w subject) keys() int { return 1 + len(w.groups) }

// key returns one of the keys: the name is the first.
func (w subject) key(i int) Key {
	if i == 0 {
		return Key{Kind: rbacv1.UserKind, Name: w.name}
	}
	return Key{Kind: rbacv1.GroupKind, Name: w.groups[i-1]}
}

// among returns the first subject of a binding that the user matches, and the first
// key that matches, or -1. The namespace is that of the binding.
func (w subject) among(subjects []rbacv1.Subject, namespace string) (*rbacv1.Subject, int) {
	for i := range subjects {
		if key := w.keyOf(&subjects[i], namespace); key >= 0 {
			return &subjects[i], key
		}
	}
	return nil, -1
}

func (w subject) keyOf(subject *rbacv1.Subject, namespace string) int {
	switch subject.Kind {
	case rbacv1.UserKind:
		if subject.Name == w.name {
			return 0
		}
	case rbacv1.GroupKind:
		if i := slices.Index(w.groups, subject.Name); i >= 0 {
			return i + 1
		}
	case rbacv1.ServiceAccountKind:
		home := accountNamespace(subject, namespace)
		if home != "" && serviceaccount.MatchesUsername(home, subject.Name, w.name) {
			return 0
		}
	}
	return -1
}

// request is the part of a request that rules cover. They do not cover field and
// label selectors: a rule allows all objects of a resource or those it names.
type request struct {
	resourceful bool // else path
	verb        string

	group       string
	resource    string
	subresource string
	name        string

	path string
}

func requestOf(a authorizer.Attributes) request {
	if !a.IsResourceRequest() {
		return request{verb: a.GetVerb(), path: a.GetPath()}
	}
	return request{
		resourceful: true,
		verb:        a.GetVerb(),
		group:       a.GetAPIGroup(),
		resource:    a.GetResource(),
		subresource: a.GetSubresource(),
		name:        a.GetName(),
	}
}

// allowedBy reports whether one of the rules allows the request.
func (r *request) allowedBy(rules []rbacv1.PolicyRule) bool {
	for i := range rules {
		rule := &rules[i]
		if !containsOrAll(rule.Verbs, r.verb) {
			continue
		}
		if r.resourceful && r.resourceIn(rule) || !r.resourceful && urlIn(rule.NonResourceURLs, r.path) {
			return true
		}
	}
	return false
}

// resourceIn reports whether a rule covers the resource and the object. A request
// without a name (create, list, deletecollection) is allowed by no rule that has
// names. A list or watch has a name when its field selector is
// metadata.name=<name>.
func (r *request) resourceIn(rule *rbacv1.PolicyRule) bool {
	if !containsOrAll(rule.APIGroups, r.group) {
		return false
	}
	if len(rule.ResourceNames) > 0 && !slices.Contains(rule.ResourceNames, r.name) {
		return false
	}
	return slices.ContainsFunc(rule.Resources, func(known string) bool {
		return known == rbacv1.ResourceAll || isResource(known, r.resource, r.subresource)
	})
}

// isResource compares "pods", "pods/log" or "*/scale" with a resource and its
// subresource, without joining them: this runs for each rule of each request.
func isResource(known, resource, subresource string) bool {
	if subresource == "" {
		return known == resource
	}
	before, found := strings.CutSuffix(known, subresource)
	if !found {
		return false
	}
	before, found = strings.CutSuffix(before, "/")
	return found && (before == resource || before == rbacv1.ResourceAll)
}

// urlIn reports whether a path equals one of the URLs, or begins with one that ends
// in "*".
func urlIn(urls []string, path string) bool {
	return slices.ContainsFunc(urls, func(known string) bool {
		return known == path || strings.HasSuffix(known, "*") && strings.HasPrefix(path, strings.TrimRight(known, "*"))
	})
}

// containsOrAll says whether a value, or "*", is in a list of verbs or groups.
func containsOrAll(list []string, value string) bool {
	return slices.ContainsFunc(list, func(known string) bool { return known == "*" || known == value })
}
