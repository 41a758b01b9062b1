package authz

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// FilteredLists answers lists and watches that no part allows with the objects
// that the user may get: by name in a role, in the namespaces of their role
// bindings, or by what another part decides. Pages, continuation, bookmarks and
// resource versions are as those of a list with a selector, and only the resource
// version reveals other objects.
//
// A list is decided by the rules of the user at that moment, where all authorizers
// list theirs, and object by object otherwise; each event of a watch when it is sent. A
// user who loses an object during a watch gets no more events of it, not even its
// deletion; one who gains an object gets its next change. An error of an
// authorizer fails the list and ends the watch.
//
// A user who has no rule to get any object of the resource in the namespace is
// refused, as without this part, when all authorizers list their rules, as RBAC
// does. Otherwise, and in lists of the whole plane, they get an empty list.
//
// Deletes of collections still need the verb deletecollection, and reviews of
// list and watch still answer no. Resources of other API servers are not
// filtered: their lists stay refused.
type FilteredLists struct {
	// Resources are those whose lists and watches are filtered, built-in, typed
	// or custom: {Resource: "configmaps"}, {Group: "example.com", Resource:
	// "widgets"}. Required.
	Resources []schema.GroupResource
}

// PartName implements the name errors use.
func (FilteredLists) PartName() string { return "authz.FilteredLists" }

// Install declares the filter.
func (f FilteredLists) Install(p *controlplane.Plan) error {
	if len(f.Resources) == 0 {
		return errors.New("field Resources: is empty: name the resources whose lists are filtered")
	}
	if slices.ContainsFunc(f.Resources, func(r schema.GroupResource) bool { return r.Resource == "" }) {
		return errors.New("field Resources: a resource has no name")
	}
	p.FilterLists(gettable, f.Resources...)
	return nil
}

// gettable keeps the objects that the user may get.
func gettable(ctx context.Context, a authorizer.Attributes, by controlplane.Authority) controlplane.KeepFunc {
	get := authorizer.AttributesRecord{
		User: a.GetUser(), Verb: "get", ResourceRequest: true, Namespace: a.GetNamespace(),
		APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(), Resource: a.GetResource(),
	}
	if mayGetNone(ctx, &get, by.Rules) {
		return nil
	}
	isNamespaces := a.GetAPIGroup() == corev1.GroupName && a.GetResource() == "namespaces"
	ask := func(ctx context.Context, namespace, name string) (bool, error) {
		asked := get
		asked.Namespace, asked.Name = namespace, name
		if isNamespaces {
			asked.Namespace = name // as in a request for one namespace
		}
		decision, _, err := by.Authorizer.Authorize(ctx, &asked)
		if decision == Allow {
			return true, nil
		}
		return false, err
	}
	if a.GetVerb() != "list" || isNamespaces {
		return ask // a watch outlives the rules of when it began
	}
	var known sync.Map // by namespace, a *named, which is nil where the rules do not tell all
	return func(ctx context.Context, namespace, name string) (bool, error) {
		found, ok := known.Load(namespace)
		if !ok {
			found, _ = known.LoadOrStore(namespace, namedBy(ctx, &get, namespace, by.Rules))
		}
		if names := found.(*named); names != nil {
			return names.all || names.some.Has(name), nil
		}
		return ask(ctx, namespace, name)
	}
}

// named are the names that rules give. The rules of a user are looked up once for each
// namespace of a list, and not once for each object: roles can be many, and objects are.
type named struct {
	all  bool
	some sets.Set[string]
}

// namedBy reads the rules for a namespace. It is nil when they do not tell everything that
// the authorizers allow.
func namedBy(ctx context.Context, a authorizer.Attributes, namespace string, resolver authorizer.RuleResolver) *named {
	rules, _, incomplete, err := resolver.RulesFor(ctx, a.GetUser(), namespace)
	if incomplete || err != nil {
		return nil
	}
	n := &named{some: sets.New[string]()}
	for _, r := range rules {
		if !covers(r, a) {
			continue
		}
		n.all = n.all || len(r.GetResourceNames()) == 0
		n.some.Insert(r.GetResourceNames()...)
	}
	return n
}

// covers tells whether a rule is about the verb and the resource.
func covers(r authorizer.ResourceRuleInfo, a authorizer.Attributes) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	return has(r.GetVerbs(), a.GetVerb()) && has(r.GetAPIGroups(), a.GetAPIGroup()) && has(r.GetResources(), a.GetResource())
}

// mayGetNone tells whether no rule lets the user get an object, or no rules are
// known yet: an empty list would claim that there are no objects. It is false
// when the rules cannot tell: those for the whole plane leave out those for one namespace.
func mayGetNone(ctx context.Context, a authorizer.Attributes, resolver authorizer.RuleResolver) bool {
	rules, _, incomplete, err := resolver.RulesFor(ctx, a.GetUser(), a.GetNamespace())
	if errors.As(err, &startingError{}) {
		return true
	}
	if a.GetNamespace() == "" || incomplete || err != nil {
		return false
	}
	return !slices.ContainsFunc(rules, func(r authorizer.ResourceRuleInfo) bool { return covers(r, a) })
}
