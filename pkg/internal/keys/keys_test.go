package keys_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
)

// TestPlace: what an object's key is made of is found in it again.
func TestPlace(t *testing.T) {
	t.Parallel()
	deployments, configMaps := schema.GroupResource{Group: "apps", Resource: "deployments"}, schema.GroupResource{Resource: "configmaps"}
	namespaces, widgets := schema.GroupResource{Resource: "namespaces"}, schema.GroupResource{Group: "example.com", Resource: "widgets"}
	cases := map[string]struct {
		reason          string
		space           keys.Space
		resource        schema.GroupResource
		namespace, name string
		want            string
		// ambiguous: without the object, the key may be of another resource as well.
		ambiguous bool
	}{
		"root, core":          {"as in Kubernetes", keys.Space{}, configMaps, "shop", "a", "/registry/configmaps/shop/a", true},
		"root, cluster":       {"no namespace", keys.Space{}, namespaces, "", "shop", "/registry/namespaces/shop", false},
		"root, group":         {"the group before the resource", keys.Space{}, deployments, "shop", "a", "/registry/apps/deployments/shop/a", false},
		"root, group's scope": {"a group has dots", keys.Space{}, widgets, "", "a", "/registry/example.com/widgets/a", false},
		"plane, core": {
			"core stands for itself",
			keys.Space{Plane: "blue"},
			configMaps, "shop", "a",
			"/registry/.planes/_core/configmaps/blue/shop/a", true,
		},
		"plane, cluster": {
			"no namespace", keys.Space{Plane: "blue"}, namespaces, "", "shop", "/registry/.planes/_core/namespaces/blue/shop", false,
		},
		"plane, group": {
			"the plane behind the resource",
			keys.Space{Plane: "blue"},
			widgets, "shop", "a",
			"/registry/.planes/example.com/widgets/blue/shop/a", false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.space.Prefix = "/registry"
			object := tc.name
			if tc.namespace != "" {
				object = tc.namespace + "/" + tc.name
			}
			if got := tc.space.Range(tc.resource) + object; got != tc.want {
				t.Errorf("%s: the key is %s, want %s", tc.reason, got, tc.want)
			}
			plane, place := keys.Space{Prefix: "/registry"}.Place(tc.want)
			resource, ok := keys.Resource(place, tc.namespace, tc.name)
			if plane != tc.space.Plane || resource != tc.resource || !ok {
				t.Errorf("%s is of plane %q in %s: %v (%v)", tc.want, plane, place, resource, ok)
			}
			guessed := keys.Resources(place)
			if guessed[0] != tc.resource || (len(guessed) > 1) != tc.ambiguous {
				t.Errorf("%s may be of %v", place, guessed)
			}
		})
	}
}

// TestNobody: what is no object's key is nobody's.
func TestNobody(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "/registry", "/registryx/configmaps/a/b", "/registry/.planes/", "/registry/.planes/_core/configmaps/blue"} {
		if plane, place := (keys.Space{Prefix: "/registry"}).Place(key); plane != "" || place != "" {
			t.Errorf("%q is of plane %q in %q", key, plane, place)
		}
	}
	for _, c := range [][3]string{{"configmaps/shop/a", "", "b"}, {"configmaps/shop/a", "yard", "a"}, {"a", "", "a"}, {"configmaps/a", "", ""}} {
		if r, ok := keys.Resource(c[0], c[1], c[2]); ok {
			t.Errorf("%q is of %v", c, r)
		}
	}
}

// TestNext: from one resource to the next, ranges have what is the plane's and
// nothing else.
func TestNext(t *testing.T) {
	t.Parallel()
	blue := keys.Space{Prefix: "/registry", Plane: "blue"}
	from, end := blue.First()
	if diff := cmp.Diff([]string{"/registry/.planes/", "/registry/.planes0"}, []string{from, end}); diff != "" {
		t.Errorf("all planes (-want +got):\n%s", diff)
	}
	from, end, next := blue.Next("/registry/.planes/apps/deployments/amber/shop/a")
	want := []string{"/registry/.planes/apps/deployments/blue/", "/registry/.planes/apps/deployments/blue0", "/registry/.planes/apps/deployments0"}
	if diff := cmp.Diff(want, []string{from, end, next}); diff != "" {
		t.Errorf("one resource (-want +got):\n%s", diff)
	}
	from, end = keys.Space{Prefix: "/registry"}.First()
	for key, in := range map[string]bool{
		"/registry/configmaps/shop/a": true, "/registry/0.example.com/things/a": true,
		"/registry/.planes/_core/configmaps/blue/shop/a": false, "/registry0": false, "/other": false,
	} {
		if got := from <= key && key < end; got != in {
			t.Errorf("%s is the root plane's: %v", key, got)
		}
	}
}

// TestLent: a lent part has no object of anybody, and keys of other parts begin otherwise.
func TestLent(t *testing.T) {
	t.Parallel()
	space := keys.Space{Prefix: "/registry"}
	root, state := space.Lent("a")
	for _, key := range []string{root + "/registry/pods/x", root + "compact_rev_key", state} {
		if plane, place := space.Place(key); plane != "" || place != "" {
			t.Errorf("%s is of plane %q in %q", key, plane, place)
		}
	}
	for _, name := range []string{"ab", "b", ""} {
		if other, _ := space.Lent(name); strings.HasPrefix(other, root) || strings.HasPrefix(root, other) {
			t.Errorf("%s and %s meet", root, other)
		}
	}
	for key, want := range map[string]string{
		root + "compact_rev_key": "compact_rev_key", root + "/registry/x": "/registry/x", state: "", "/registry/pods/x": "",
		"/registry/.internal/lent/": "", "/registry/.internal/lent//a": "", "compact_rev_key": "",
	} {
		if got, isLent := keys.Lent(key); got != want && isLent || isLent != (want != "") {
			t.Errorf("%s is lent as %q, %v, want %q", key, got, isLent, want)
		}
	}
}
