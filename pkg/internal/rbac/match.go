package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// who is what of a user bindings speak of.
type who struct {
	name   string
	groups []string
}

func whoIs(u user.Info) who {
	return who{name: u.GetName(), groups: u.GetGroups()}
}

// keys is how many keys somebody has: the name and the groups.
func (w who) keys() int { return 1 + len(w.groups) }

// key returns one of the keys: the name is the first.
func (w who) key(i int) Key {
	if i == 0 {
		return Key{Kind: rbacv1.UserKind, Name: w.name}
	}
	return Key{Kind: rbacv1.GroupKind, Name: w.groups[i-1]}
}

// before is somebody with only the keys before one that is not the first.
func (w who) before(i int) who {
	return who{name: w.name, groups: w.groups[:i-1]}
}

// among returns the first of the subjects of a binding that somebody is, or
// nil. The namespace is that of the binding.
func (w who) among(subjects []rbacv1.Subject, namespace string) *rbacv1.Subject {
	for i := range subjects {
		if w.is(&subjects[i], namespace) {
			return &subjects[i]
		}
	}
	return nil
}

func (w who) is(subject *rbacv1.Subject, namespace string) bool {
	switch subject.Kind {
	case rbacv1.UserKind:
		return subject.Name == w.name
	case rbacv1.GroupKind:
		return slices.Contains(w.groups, subject.Name)
	case rbacv1.ServiceAccountKind:
		home := accountNamespace(subject, namespace)
		return home != "" && serviceaccount.MatchesUsername(home, subject.Name, w.name)
	default:
		return false
	}
}

// request is what of a request rules speak of. Field and label selectors are
// not among it: a rule allows all objects of a resource or those it names.
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

// allowedBy says whether one of the rules allows the request.
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

// resourceIn says whether a rule speaks of the resource and the object. A
// request without a name (create, list, deletecollection) is allowed by no
// rule that has names. A list or watch has one when its field selector is
// metadata.name=<name>.
func (r *request) resourceIn(rule *rbacv1.PolicyRule) bool {
	if !containsOrAll(rule.APIGroups, r.group) {
		return false
	}
	if len(rule.ResourceNames) > 0 && !slices.Contains(rule.ResourceNames, r.name) {
		return false
	}
	for _, known := range rule.Resources {
		if known == rbacv1.ResourceAll || isResource(known, r.resource, r.subresource) {
			return true
		}
	}
	return false
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

// urlIn says whether a path is among URLs, of which some end in "*".
func urlIn(urls []string, path string) bool {
	for _, url := range urls {
		if urlCovers(url, path) {
			return true
		}
	}
	return false
}

// urlCovers says whether a URL of a rule is, or begins, another.
func urlCovers(known, url string) bool {
	if known == url {
		return true
	}
	return strings.HasSuffix(known, "*") && strings.HasPrefix(url, strings.TrimRight(known, "*"))
}

// containsOrAll says whether a value, or "*", is in a list of verbs or groups.
func containsOrAll(list []string, value string) bool {
	for _, known := range list {
		if known == "*" || known == value {
			return true
		}
	}
	return false
}
