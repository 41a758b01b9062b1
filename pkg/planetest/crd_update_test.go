package planetest_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

func yamlUnmarshal(data []byte, into any) error { return yaml.Unmarshal(data, into) }

func resourceOfWidgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
}

func definitionsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// boats is a CRD with a schema of spec in one or two versions.
func boats(versions string) planetest.Source {
	return planetest.YAML(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList}
  versions:
` + versions)
}

// in is a version of a CRD.
func in(name, flags, spec string) string {
	return "  - {name: " + name + ", " + flags + ", schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, " + spec + "}}}}}\n"
}

const storage, served, unserved = "served: true, storage: true", "served: true, storage: false", "served: false, storage: false"

func boat(version, name, spec string) string {
	return "{apiVersion: example.com/" + version + ", kind: Boat, metadata: {name: " + name + "}, spec: " + spec + "}"
}

// TestRatcheting: an update of a CRD that makes stored objects invalid. They can be
// read and changed, as long as what is invalid stays as it is.
func TestRatcheting(t *testing.T) {
	t.Parallel()
	crd := planetest.CRD(t, boats(in("v1", storage, "properties: {masts: {type: integer}, name: {type: string}}")))
	crd.Stores(boat("v1", "pamir", "{masts: 9, name: Pamir}"))
	crd.Update(boats(in("v1", storage, "properties: {masts: {type: integer, maximum: 7}, name: {type: string}}")))
	crd.
		Rejects(boat("v1", "preussen", "{masts: 8}"), "spec.masts", "less than or equal to 7").
		Reads(boat("v1", "pamir", "{masts: 9, name: Pamir}")).
		AcceptsUpdate(boat("v1", "pamir", "{masts: 9, name: Peking}"), boat("v1", "pamir", "{masts: 4}")).
		RejectsUpdate(boat("v1", "pamir", "{masts: 8, name: Pamir}"), "spec.masts", "less than or equal to 7").
		Reads(boat("v1", "pamir", "{masts: 9, name: Pamir}")) // nothing of it was stored
}

// TestTransitionRules: rules about what was there before.
func TestTransitionRules(t *testing.T) {
	t.Parallel()
	rule := "x-kubernetes-validations: [{rule: self == oldSelf, message: the name is painted on}]"
	crd := planetest.CRD(t, boats(in("v1", storage, "properties: {name: {type: string, "+rule+"}}")))
	crd.Stores(boat("v1", "a", "{name: Pamir}")).
		AcceptsUpdate(boat("v1", "a", "{name: Pamir}")).
		RejectsUpdate(boat("v1", "a", "{name: Peking}"), "the name is painted on")
}

// TestUpdateIsInForce: of many updates, each is, when it returns.
func TestUpdateIsInForce(t *testing.T) {
	t.Parallel()
	crd := planetest.CRD(t, boats(in("v1", storage, "properties: {masts: {type: integer}}")))
	for range 10 {
		crd.Update(boats(in("v1", storage, "properties: {masts: {type: integer, maximum: 1}}"))).
			Rejects(boat("v1", "a", "{masts: 2}"), "less than or equal to 1")
		crd.Update(boats(in("v1", storage, "properties: {masts: {type: integer, maximum: 3}}"))).
			Accepts(boat("v1", "a", "{masts: 2}"))
	}
	got, err := crd.Plane().Dynamic().Resource(definitionsResource()).Get(t.Context(), "boats.example.com", metav1.GetOptions{})
	must(t, err)
	if text, _ := got.MarshalJSON(); strings.Contains(string(text), "deprecat") {
		t.Errorf("a mark was left: %s", text)
	}
}

// TestMigration: the storage version changes, the objects follow, and the version
// before can go.
func TestMigration(t *testing.T) {
	t.Parallel()
	const spec = "properties: {masts: {type: integer}}"
	crd := planetest.CRD(t, boats(in("v1", storage, spec)))
	crd.Stores(boat("v1", "a", "{masts: 1}"), boat("v1", "b", "{masts: 2}"))
	both := in("v1", served, spec) + in("v2", storage, spec)
	crd.Update(boats(both)).
		StoredVersions("v1", "v2").
		Reads(boat("v1", "a", "{masts: 1}"), boat("v2", "a", "{masts: 1}")).
		RefusesToUpdate(boats(in("v2", storage, spec)), "missing from spec.versions", "v1")
	crd.Migrate().
		StoredVersions("v2").
		Update(boats(in("v2", storage, spec))).
		Reads(boat("v2", "a", "{masts: 1}"), boat("v2", "b", "{masts: 2}"))
	contains(t, failure(t, func(t planetest.TB) { crd.For(t).Accepts(boat("v1", "c", "{}")) }), "example.com/v1 Boat is not served")
}

// TestUnservedVersion: one that is not served is not.
func TestUnservedVersion(t *testing.T) {
	t.Parallel()
	const spec = "properties: {masts: {type: integer}}"
	crd := planetest.CRD(t, boats(in("v1", unserved, spec)+in("v2", storage, spec)))
	crd.Accepts(boat("v2", "a", "{}"))
	contains(t, failure(t, func(t planetest.TB) { crd.For(t).Accepts(boat("v1", "c", "{}")) }), "example.com/v1 Boat is not served")
}

func applyOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: planetest.FieldManager}
}
