package planetest

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// version is what a CRD says of one of its versions.
type version struct {
	name                    string
	served, storage, status bool
	fields                  map[string]any // its entry in spec.versions
}

// versionsOf returns the versions of a CRD. Malformed parts are left out: the
// server reports them.
func versionsOf(crd *unstructured.Unstructured) []version {
	field, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	list, _ := field.([]any)
	var all []version
	for _, item := range list {
		v, _ := item.(map[string]any)
		name, _ := v["name"].(string)
		_, status, _ := unstructured.NestedFieldNoCopy(v, "subresources", "status")
		all = append(all, version{name, v["served"] == true, v["storage"] == true, status, v})
	}
	return all
}

// resourceOf is the resource of a CRD in a version.
func resourceOf(crd *unstructured.Unstructured, version string) schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

// recordServed remembers what a CRD serves, and forgets what it served before.
func (d *Definition) recordServed(crd *unstructured.Unstructured) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.kinds, func(_ schema.GroupVersionKind, s served) bool { return s.crd == crd.GetName() })
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	for _, v := range versionsOf(crd) {
		if v.served {
			d.kinds[resourceOf(crd, v.name).GroupVersion().WithKind(kind)] = served{crd: crd.GetName(), status: v.status}
		}
	}
}

// names are the CRDs under test.
func (d *Definition) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, s := range d.kinds {
		names = append(names, s.crd)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inServedVersion puts an object into a version that the CRDs serve, and tells
// whether there is one.
func (d *Definition) inServedVersion(o *unstructured.Unstructured) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	kind := o.GroupVersionKind()
	if _, ok := d.kinds[kind]; ok {
		return true
	}
	for k := range d.kinds {
		if k.GroupKind() == kind.GroupKind() {
			o.SetGroupVersionKind(k)
			return true
		}
	}
	return false
}
