// Package keys knows where a storage has its objects: at
//
//	PREFIX/[GROUP/]RESOURCE/[NAMESPACE/]NAME
//
// for the root plane, as a kube-apiserver lays out custom resources and, without
// the group, its core resources; and for another plane at
//
//	PREFIX/.planes/GROUP/RESOURCE/PLANE/[NAMESPACE/]NAME
//
// with _core for the core group. A resource has its objects of all other planes
// side by side, so that one range has them all. PREFIX/.internal/ has what servers keep
// beside objects.
package keys

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// planes is where planes other than the root have their objects: no group or
	// resource has such a name.
	planes = ".planes/"
	// beside is where servers keep what is no object. It comes before planes, and so
	// before all objects.
	beside = ".internal/"
	// lent is where parts of the storage are that are lent.
	lent = beside + "lent/"
	// core stands for the core group. No group has this name.
	core = "_core"
)

// Space is where one plane has its objects.
type Space struct {
	// Prefix starts every key of a server, "/registry".
	Prefix string
	// Plane is the name of the plane, empty for the root plane.
	Plane string
}

// Of returns where the objects of a resource are, below the prefix: a path without
// slashes at its ends.
func (s Space) Of(r schema.GroupResource) string {
	if s.Plane != "" {
		return planes + cmp.Or(r.Group, core) + "/" + r.Resource + "/" + s.Plane
	}
	if r.Group == "" {
		return r.Resource
	}
	return r.Group + "/" + r.Resource
}

// Range returns the prefix of the keys of a resource's objects.
func (s Space) Range(r schema.GroupResource) string { return s.root() + s.Of(r) + "/" }

// Term returns the key for the terms of elected work in the space.
func (s Space) Term(name string) string { return s.root() + beside + "terms/" + s.Plane + "/" + name }

// Shared returns the key of what all servers on the storage have in common.
func (s Space) Shared(name string) string { return s.root() + beside + "shared/" + name }

// Lent returns what starts the keys of a part of the storage that is lent to somebody,
// and the key of what is known of it.
func (s Space) Lent(name string) (root, state string) {
	at := s.root() + lent + s.Plane + "/" + name + "/"
	return at + "k", at + "state"
}

// Lent returns the key that a borrower knows a key of a lent part by.
func Lent(key string) (borrowed string, ok bool) {
	_, below, ok := strings.Cut(key, "/"+lent)
	if !ok {
		return "", false
	}
	parts := strings.SplitN(below, "/", 3)
	if len(parts) < 3 {
		return "", false
	}
	return strings.CutPrefix(parts[2], "k")
}

func (s Space) root() string { return strings.TrimSuffix(s.Prefix, "/") + "/" }

// Place splits a key of the server: the plane, and the key below the prefix if the
// plane were the root plane. Both are empty if the key is of no object.
func (s Space) Place(key string) (plane, place string) {
	below, ok := strings.CutPrefix(key, s.root())
	if !ok || strings.HasPrefix(below, beside) {
		return "", ""
	}
	further, ok := strings.CutPrefix(below, planes)
	if !ok {
		return "", below
	}
	group, rest, _ := strings.Cut(further, "/")
	resource, rest, _ := strings.Cut(rest, "/")
	plane, name, ok := strings.Cut(rest, "/")
	switch {
	case !ok:
		return "", ""
	case group == core:
		return plane, resource + "/" + name
	}
	return plane, group + "/" + resource + "/" + name
}

// Resource returns the resource of an object from its place and name.
func Resource(place, namespace, name string) (r schema.GroupResource, ok bool) {
	if namespace != "" {
		name = namespace + "/" + name
	}
	path, ok := strings.CutSuffix(place, "/"+name)
	if !ok || path == "" || name == "" {
		return r, false
	}
	if group, resource, found := strings.Cut(path, "/"); found {
		return schema.GroupResource{Group: group, Resource: resource}, true
	}
	return schema.GroupResource{Resource: path}, true
}

// Resources returns the possible resources of a place, the most likely first. Names
// of resources have no dots, and those of most groups do.
func Resources(place string) []schema.GroupResource {
	parts := strings.SplitN(place, "/", 4)
	switch len(parts) {
	case 4:
		return []schema.GroupResource{{Group: parts[0], Resource: parts[1]}}
	case 3:
		grouped, core := schema.GroupResource{Group: parts[0], Resource: parts[1]}, schema.GroupResource{Resource: parts[0]}
		if strings.Contains(parts[0], ".") {
			return []schema.GroupResource{grouped}
		}
		return []schema.GroupResource{core, grouped}
	}
	return []schema.GroupResource{{Resource: parts[0]}}
}

// First is the range that has all objects of the space: [Space.Next] leaves out
// what is between them.
func (s Space) First() (from, end string) {
	if s.Plane != "" {
		return s.root() + planes, after(s.root() + planes)
	}
	// What is below the prefix of other planes starts with a dot, and comes before.
	return after(s.root() + planes), after(s.root())
}

// Next is where to go on, given the first key found in a range: the range in which
// the space has objects of that key's resource, and the first key after that
// resource.
func (s Space) Next(key string) (from, end, next string) {
	resource := planes + strings.Join(strings.SplitN(strings.TrimPrefix(key, s.root()+planes), "/", 3)[:2], "/") + "/"
	from = s.root() + resource + s.Plane + "/"
	return from, after(from), after(s.root() + resource)
}

// after returns the first key after all keys with a prefix, which ends in a slash.
func after(prefix string) string { return prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1) }
