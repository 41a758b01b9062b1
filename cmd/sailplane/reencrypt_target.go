package main

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

// target is a resource whose objects are rewritten.
type target struct{ schema.GroupVersionResource }

// name returns its name in an encryption configuration: "secrets",
// "gadgets.example.com".
func (t target) name() string { return t.GroupResource().String() }

// findTargets returns the matching resources, and the errors of discovery.
func findTargets(
	ctx context.Context, discovered discovery.DiscoveryInterface, objects dynamic.Interface, patterns []string,
) (targets []target, failed []string, err error) {
	remote, err := remoteGroups(ctx, objects)
	if err != nil {
		return nil, nil, err
	}
	lists, err := discovered.ServerPreferredResources()
	var partly *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &partly) {
		for gv, err := range partly.Groups {
			if !remote[gv] {
				failed = append(failed, fmt.Sprintf("discovery of %s: %v", gv, err))
			}
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discover resources: %w", err)
	}
	seen := map[schema.GroupResource]bool{}
	// Sub-resources are part of their objects, and not in these lists.
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "update"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || remote[gv] {
			continue
		}
		for i := range list.APIResources {
			t := target{gv.WithResource(list.APIResources[i].Name)}
			if !seen[t.GroupResource()] && matches(t.GroupResource(), patterns) {
				seen[t.GroupResource()] = true
				targets = append(targets, t)
			}
		}
	}
	if unknown := unmatched(targets, patterns); len(unknown) > 0 && len(failed) == 0 {
		return nil, nil, fmt.Errorf("the server has no resource that %s: name it as in gadgets.example.com, without a version",
			strings.Join(unknown, " or "))
	}
	// Both groups have the same events, stored as those of the core group.
	if seen[schema.GroupResource{Resource: "events"}] {
		targets = slices.DeleteFunc(targets, func(t target) bool { return t.Group == "events.k8s.io" })
	}
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.name(), b.name()) })
	slices.Sort(failed)
	return targets, failed, nil
}

// matches tells whether a pattern of an encryption configuration matches the
// resource.
func matches(r schema.GroupResource, patterns []string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		resource, group, _ := strings.Cut(p, ".")
		return p == "*.*" || p == "*" || group == r.Group && (resource == "*" || resource == r.Resource)
	})
}

// unmatched returns the patterns that match none of the resources.
func unmatched(targets []target, patterns []string) []string {
	var all []string
	for _, p := range patterns {
		if !slices.ContainsFunc(targets, func(t target) bool { return matches(t.GroupResource(), []string{p}) }) {
			all = append(all, fmt.Sprintf("is %q", p))
		}
	}
	return all
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
