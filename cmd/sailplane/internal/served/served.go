// Package served tells which resources a server has, for commands that go
// through its objects.
package served

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// Resource is a resource of a server, in the version in which it is read and
// written.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Status says that the status is a sub-resource. [Find] leaves it out: a
	// [Catalog] has it.
	Status bool
}

// Name returns its name in an encryption configuration: "secrets",
// "gadgets.example.com".
func (r Resource) Name() string { return r.GroupResource().String() }

// Query says which resources are asked for.
type Query struct {
	Discovery discovery.DiscoveryInterface
	Objects   dynamic.Interface
	// Verbs are those that a resource must have.
	Verbs []string
	// Patterns are as in an encryption configuration; none match everything.
	Patterns []string
}

// Found is what a server has.
type Found struct {
	// Resources are in the order of their names.
	Resources []Resource
	// Remote are the group versions that other servers have, which are left out.
	Remote map[schema.GroupVersion]bool
	// Failed are the errors of discovery, in order.
	Failed []string
}

// Find returns the matching resources that the server itself has. A pattern that
// matches none is an error.
func Find(ctx context.Context, q Query) (Found, error) {
	remote, err := remoteGroups(ctx, q.Objects)
	if err != nil {
		return Found{}, err
	}
	found := Found{Remote: remote}
	lists, err := q.Discovery.ServerPreferredResources()
	var partly *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &partly) {
		for gv, err := range partly.Groups {
			if !remote[gv] {
				found.Failed = append(found.Failed, fmt.Sprintf("discovery of %s: %v", gv, err))
			}
		}
	} else if err != nil {
		return Found{}, fmt.Errorf("discover resources: %w", err)
	}
	seen := map[schema.GroupResource]bool{}
	// Sub-resources are part of their objects, and not in these lists.
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: q.Verbs}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || remote[gv] {
			continue
		}
		for i := range list.APIResources {
			a := &list.APIResources[i]
			r := Resource{GroupVersionResource: gv.WithResource(a.Name), Kind: a.Kind, Namespaced: a.Namespaced}
			if !seen[r.GroupResource()] && Matches(r.GroupResource(), q.Patterns) {
				seen[r.GroupResource()] = true
				found.Resources = append(found.Resources, r)
			}
		}
	}
	if unknown := unmatched(found.Resources, q.Patterns); len(unknown) > 0 && len(found.Failed) == 0 {
		return Found{}, fmt.Errorf("the server has no resource that %s: name it as in gadgets.example.com, without a version",
			strings.Join(unknown, " or "))
	}
	// Both groups have the same events, stored as those of the core group.
	if seen[schema.GroupResource{Resource: "events"}] {
		found.Resources = slices.DeleteFunc(found.Resources, func(r Resource) bool {
			return r.Group == "events.k8s.io" && r.Resource == "events"
		})
	}
	slices.SortFunc(found.Resources, func(a, b Resource) int { return cmp.Compare(a.Name(), b.Name()) })
	slices.Sort(found.Failed)
	return found, nil
}

// Matches tells whether a pattern of an encryption configuration matches the
// resource. No patterns match everything.
func Matches(r schema.GroupResource, patterns []string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		resource, group, _ := strings.Cut(p, ".")
		return p == "*.*" || p == "*" || group == r.Group && (resource == "*" || resource == r.Resource)
	})
}

// unmatched returns the patterns that match none of the resources.
func unmatched(all []Resource, patterns []string) []string {
	var none []string
	for _, p := range patterns {
		if !slices.ContainsFunc(all, func(r Resource) bool { return Matches(r.GroupResource(), []string{p}) }) {
			none = append(none, fmt.Sprintf("is %q", p))
		}
	}
	return none
}

// remoteGroups returns the groups that other servers serve and store.
func remoteGroups(ctx context.Context, objects dynamic.Interface) (map[schema.GroupVersion]bool, error) {
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	list, err := objects.Resource(services).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list apiservices: %w", err)
	}
	remote := map[schema.GroupVersion]bool{}
	for i := range list.Items {
		spec, _, _ := unstructured.NestedMap(list.Items[i].Object, "spec") // anything else is not remote
		if spec["service"] != nil {
			remote[schema.GroupVersion{Group: fmt.Sprint(spec["group"]), Version: fmt.Sprint(spec["version"])}] = true
		}
	}
	return remote, nil
}
