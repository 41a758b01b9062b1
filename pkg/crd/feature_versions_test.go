package crd_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// lamps has three versions with conversion None, one of which is not served.
const lamps = `
conversion: {strategy: None}
versions:
- name: v1alpha1
  served: false
  storage: false
  schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
- name: v1beta1
  served: true
  storage: true
  deprecated: true
  deprecationWarning: use v1 lamps
  schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {watts: {type: integer}, colour: {type: string}}}}}}
- name: v1
  served: true
  storage: false
  schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {watts: {type: integer}, base: {type: string, default: E27}}}}}}
`

func lamp(version, name, spec string) string {
	return "{apiVersion: example.com/" + version + ", kind: Lamp, metadata: {name: " + name + "}, spec: " + spec + "}"
}

// TestVersions: with strategy None every served version gives the same fields,
// each pruned by its own schema.
func TestVersions(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.define(t, definition(t, "lamps", "Lamp", lamps))
	beta, stable := p.of("lamps", "v1beta1"), p.of("lamps", "v1")
	w, err := stable.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	create(t, beta, lamp("v1beta1", "a", "{watts: 5, colour: red}"))
	got := get(t, stable, "a")
	// What is read is defaulted by the schema of the stored version, before it is converted.
	if got.GetAPIVersion() != "example.com/v1" || at(got, "spec.colour") != nil || at(got, "spec.base") != nil || at(got, "spec.watts") != int64(5) {
		t.Errorf("a v1beta1 lamp as v1: %v", got.Object)
	}
	if e, ok := (<-w.ResultChan()).Object.(*unstructured.Unstructured); !ok || e.GetAPIVersion() != "example.com/v1" || at(e, "spec.colour") != nil {
		t.Errorf("a v1beta1 lamp in a watch of v1: %v", e)
	}
	create(t, stable, lamp("v1", "b", "{watts: 1, base: E14}"))
	list, err := beta.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return u.GetAPIVersion() != "example.com/v1beta1" }) {
		t.Errorf("a list of v1beta1: %v", list.Items)
	}
	if _, err := p.of("lamps", "v1alpha1").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a list in a version that is not served: %v", err)
	}
	if _, err := p.of("lamps", "v1").Create(t.Context(), object(t, lamp("v1beta1", "c", "{}")), metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a v1beta1 object sent to v1: %v", err)
	}
}

// TestStoredVersions: the status tells every version that was ever stored, and
// one of them cannot be removed until the status is changed.
func TestStoredVersions(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.define(t, definition(t, "lamps", "Lamp", lamps))
	stored := func() []string {
		t.Helper()
		got, _, _ := unstructured.NestedStringSlice(get(t, p.Resource(crds), "lamps.example.com").Object, "status", "storedVersions")
		return got
	}
	if diff := cmp.Diff([]string{"v1beta1"}, stored()); diff != "" {
		t.Errorf("at first: -want +got:\n%s", diff)
	}
	create(t, p.of("lamps", "v1"), lamp("v1", "a", "{watts: 5}"))
	const patch = `[{"op": "replace", "path": "/spec/versions/1/storage", "value": false}, {"op": "replace", "path": "/spec/versions/2/storage", "value": true}]`
	if _, err := p.Resource(crds).Patch(t.Context(), "lamps.example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1beta1", "v1"}, stored()); diff != "" {
		t.Errorf("after v1 is stored: -want +got:\n%s", diff)
	}
	remove := func() error {
		_, err := p.Resource(crds).Patch(t.Context(), "lamps.example.com", types.JSONPatchType, []byte(`[{"op": "remove", "path": "/spec/versions/1"}]`), metav1.PatchOptions{})
		return err
	}
	if got := causes(t, remove())["status.storedVersions[0]"]; !strings.Contains(got, "must appear in spec.versions") && !strings.Contains(got, "missing from spec.versions") {
		t.Errorf("removing a stored version: %q", got)
	}
	if got := get(t, p.of("lamps", "v1"), "a"); at(got, "spec.watts") != int64(5) {
		t.Errorf("an object of the old stored version: %v", got.Object)
	}
	if _, err := p.Resource(crds).Patch(t.Context(), "lamps.example.com", types.MergePatchType, []byte(`{"status": {"storedVersions": ["v1"]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Errorf("removing a version that is no longer stored: %v", err)
	}
}

// TestTwoPlanes: planes in one process know nothing of each other's CRDs, those
// of the same name included.
func TestTwoPlanes(t *testing.T) {
	t.Parallel()
	const one = "versions:\n- name: VERSION\n  served: true\n  storage: true\n  schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {FIELD: {type: string, default: d}}}}}}"
	planes := map[string]plane{"v1": start(t), "v2": start(t)}
	for version, p := range planes {
		p.define(t, definition(t, "lamps", "Lamp", strings.NewReplacer("VERSION", version, "FIELD", "field-"+version).Replace(one)))
	}
	for version, p := range planes {
		u := create(t, p.of("lamps", version), lamp(version, "only-"+version, "{}"))
		if diff := cmp.Diff(map[string]any{"field-" + version: "d"}, at(u, "spec")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", version, diff)
		}
	}
	for version, p := range planes {
		list, err := p.of("lamps", version).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "only-"+version {
			t.Errorf("%s: %v, %v", version, list, err)
		}
		for other := range planes {
			if _, err := p.of("lamps", other).List(t.Context(), metav1.ListOptions{}); other != version && !apierrors.IsNotFound(err) {
				t.Errorf("the plane of %s answers for %s: %v", version, other, err)
			}
		}
	}
}
