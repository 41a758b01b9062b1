package planetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

func boatKind() schema.GroupKind { return schema.GroupKind{Group: "example.com", Kind: "Boat"} }

// bothBoats has v1 with spec.masts, and v2 with spec.rig.masts, which is stored.
func bothBoats() planetest.Source {
	return boats(in("v1", served, "properties: {masts: {type: integer}, name: {type: string}}") +
		in("v2", storage, "properties: {name: {type: string}, rig: {type: object, properties: {masts: {type: integer, default: 1}, sails: {type: integer}}}}"))
}

// convertBoat converts between the versions of bothBoats. It forgets sails.
func convertBoat(_ context.Context, o *unstructured.Unstructured, version string) error {
	paths := map[string][]string{"v1": {"spec", "masts"}, "v2": {"spec", "rig", "masts"}}
	from := paths[o.GroupVersionKind().Version]
	masts, found, err := unstructured.NestedInt64(o.Object, from...)
	if err != nil || !found {
		return err
	}
	if masts < 0 {
		return errors.New("a boat has no negative masts")
	}
	unstructured.RemoveNestedField(o.Object, from[:2]...)
	return unstructured.SetNestedField(o.Object, masts, paths[version]...)
}

func TestConverts(t *testing.T) {
	t.Parallel()
	crd := planetest.CRD(t, bothBoats(), planetest.Convert(boatKind(), convertBoat))
	tests := map[string]struct {
		reason          string
		object, version string
		want            string
	}{
		"up":   {"read in a later version", boat("v1", "a", "{masts: 3}"), "v2", boat("v2", "a", "{rig: {masts: 3}}")},
		"down": {"read in an earlier version", boat("v2", "a", "{rig: {masts: 3, sails: 20}}"), "v1", boat("v1", "a", "{masts: 3}")},
		"same": {"read in its own version", boat("v1", "a", "{masts: 3}"), "v1", boat("v1", "a", "{masts: 3}")},
		"default": {
			"defaults are those of the versions it goes through", boat("v2", "a", "{rig: {}}"), "v1", boat("v1", "a", "{masts: 1}"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd.For(t).Converts(test.object, test.version, test.want)
			if t.Failed() {
				t.Log(test.reason)
			}
		})
	}
	crd.RoundTrips(boat("v1", "a", "{masts: 3, name: Pamir}"), "v1", "v2").
		RoundTrips(boat("v2", "a", "{rig: {masts: 3}}"), "v1").
		Rejects(boat("v1", "a", "{masts: -1}"), "a boat has no negative masts")
}

// TestConversionFails: a test of a conversion that is wrong fails, and says how.
func TestConversionFails(t *testing.T) {
	t.Parallel()
	crd := planetest.CRD(t, bothBoats(), planetest.Convert(boatKind(), convertBoat))
	tests := map[string]struct {
		reason string
		run    func(d *planetest.Definition)
		want   []string
	}{
		"converts": {
			"the difference is shown", func(d *planetest.Definition) {
				d.Converts(boat("v1", "a", "{masts: 3}"), "v2", boat("v2", "a", "{rig: {masts: 4}}"))
			},
			[]string{"Boat a in v2 is not as wanted", "-     masts: 4", "+     masts: 3"},
		},
		"round trip": {
			"what is lost is shown", func(d *planetest.Definition) { d.RoundTrips(boat("v2", "a", "{rig: {masts: 3, sails: 20}}"), "v1") },
			[]string{"Boat a after a round trip by v1", "-     sails: 20"},
		},
		"error": {
			"the error of the function is told", func(d *planetest.Definition) { d.Converts(boat("v1", "a", "{masts: -1}"), "v2", boat("v2", "a", "{}")) },
			[]string{"Boat a does not convert to v2", "no negative masts"},
		},
		"error of a round trip": {
			"the error of the function is told", func(d *planetest.Definition) { d.RoundTrips(boat("v2", "a", "{rig: {masts: -1}}"), "v1") },
			[]string{"does not convert to v1 and back", "no negative masts"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contains(t, failure(t, func(t planetest.TB) { test.run(crd.For(t)) }), test.want...)
			if t.Failed() {
				t.Log(test.reason)
			}
		})
	}
}

// TestConversionOfAPlane: CRDs that a plane starts with are converted, and so are
// those of a conversion that comes with an update.
func TestConversionOfAPlane(t *testing.T) {
	t.Parallel()
	one := "{plural: boats, singular: boat, kind: Boat}"
	text := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: boats.example.com}, spec: {group: example.com, scope: Cluster, names: ` + one +
		`, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}},
		{name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
	plane := planetest.Start(t, planetest.WithCRDs(fstest.MapFS{"crd.yaml": {Data: []byte(text)}}), planetest.Convert(boatKind(), convertBoat))
	plane.Apply(t, planetest.YAML(boat("v1", "pamir", "{masts: 4}")))
	got, err := plane.Dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "boats"}).Get(t.Context(), "pamir", metav1.GetOptions{})
	must(t, err)
	if masts, _, err := unstructured.NestedInt64(got.Object, "spec", "rig", "masts"); masts != 4 {
		t.Errorf("converted: %v, %v", got.Object, err)
	}
	plane.CRD(t, planetest.YAML(text)).RoundTrips(boat("v1", "a", "{masts: 3}"), "v2")
}

// TestVersionsInParallel: each version of a CRD, in a plane of its own, at the same
// time.
func TestVersionsInParallel(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	t.Run("all", func(t *testing.T) {
		for _, most := range []int{1, 3, 5, 7} {
			t.Run(fmt.Sprint(most), func(t *testing.T) {
				t.Parallel()
				crd := planetest.CRD(t, boats(in("v1", storage, fmt.Sprintf("properties: {masts: {type: integer, maximum: %d}}", most))))
				crd.Accepts(boat("v1", "a", fmt.Sprintf("{masts: %d}", most)))
				crd.Rejects(boat("v1", "a", fmt.Sprintf("{masts: %d}", most+1)), "less than or equal to")
				mu.Lock()
				defer mu.Unlock()
				got = append(got, t.Name())
			})
		}
	})
	if len(got) != 4 {
		t.Errorf("ran %v", got)
	}
}
