package authz

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// FilteredLists answers lists and watches that no part allows with the objects
// that the user may get: by name in a role, in the namespaces of their role
// bindings, or by what another part decides. Pages, continuation, bookmarks and
// resource versions are as those of a list with a selector, and only the resource
// version reveals other objects.
//
// Each object of a list and each event of a watch is decided when it is sent. A
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
	if mayGetNone(ctx, a, by.Rules) {
		return nil
	}
	get := authorizer.AttributesRecord{
		User: a.GetUser(), Verb: "get", ResourceRequest: true,
		APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(), Resource: a.GetResource(),
	}
	isNamespaces := a.GetAPIGroup() == corev1.GroupName && a.GetResource() == "namespaces"
	return func(ctx context.Context, namespace, name string) (bool, error) {
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
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	return !slices.ContainsFunc(rules, func(r authorizer.ResourceRuleInfo) bool {
		return has(r.GetVerbs(), "get") && has(r.GetAPIGroups(), a.GetAPIGroup()) && has(r.GetResources(), a.GetResource())
	})
}
