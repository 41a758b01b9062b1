package crd_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const flocks = `
versions:
- name: v1
  served: true
  storage: true
  subresources:
    status: {}
    scale: {specReplicasPath: .spec.birds, statusReplicasPath: .status.birds, labelSelectorPath: .status.selector}
  selectableFields: [{jsonPath: .spec.colour}, {jsonPath: .spec.birds}]
  additionalPrinterColumns:
  - {name: Birds, type: integer, jsonPath: .spec.birds, description: how many}
  - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
  - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
  schema:
    openAPIV3Schema:
      type: object
      properties:
        spec:
          type: object
          properties:
            birds: {type: integer, default: 1}
            colour: {type: string}
            tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
            ports:
              type: array
              x-kubernetes-list-type: map
              x-kubernetes-list-map-keys: [name]
              items: {type: object, required: [name], properties: {name: {type: string}, number: {type: integer}}}
            whole: {type: array, x-kubernetes-list-type: atomic, items: {type: string}}
        status:
          type: object
          properties: {birds: {type: integer}, selector: {type: string}}
`

func flock(name, spec string) string {
	return "{apiVersion: example.com/v1, kind: Flock, metadata: {name: " + name + "}, spec: " + spec + "}"
}

// TestSubresources: one CRD with everything beside its schema.
func TestSubresources(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.define(t, definition(t, "flocks", "Flock", flocks))
	c := p.of("flocks", "v1")
	t.Run("status", func(t *testing.T) {
		t.Parallel()
		u := create(t, c, `{apiVersion: example.com/v1, kind: Flock, metadata: {name: status}, spec: {birds: 2}, status: {birds: 9}}`)
		if at(u, "status") != nil || u.GetGeneration() != 1 {
			t.Errorf("created with a status: %v, generation %d", at(u, "status"), u.GetGeneration())
		}
		u = set(t, set(t, u, "status", map[string]any{"birds": int64(1)}), "spec.birds", int64(50))
		u, err := c.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
		if err != nil || at(u, "spec.birds") != int64(2) || at(u, "status.birds") != int64(1) || u.GetGeneration() != 1 {
			t.Fatalf("an update of the status: %v, %v", u, err)
		}
		u, err = c.Update(t.Context(), set(t, set(t, u, "status.birds", int64(7)), "spec.birds", int64(3)), metav1.UpdateOptions{})
		if err != nil || at(u, "spec.birds") != int64(3) || at(u, "status.birds") != int64(1) || u.GetGeneration() != 2 {
			t.Fatalf("an update of the spec: %v, %v", u, err)
		}
		u.SetLabels(map[string]string{"a": "b"})
		if u, err = c.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil || u.GetGeneration() != 2 {
			t.Errorf("an update of the metadata: generation %d, %v", u.GetGeneration(), err)
		}
	})
	t.Run("scale", func(t *testing.T) {
		t.Parallel()
		u := create(t, c, flock("scale", "{birds: 2}"))
		if _, err := c.UpdateStatus(t.Context(), set(t, u, "status", map[string]any{"birds": int64(1), "selector": "a=b"}), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		scale, err := c.Get(t.Context(), "scale", metav1.GetOptions{}, "scale")
		if err != nil {
			t.Fatal(err)
		}
		if scale.GetAPIVersion() != "autoscaling/v1" || scale.GetKind() != "Scale" || at(scale, "spec.replicas") != int64(2) ||
			at(scale, "status.replicas") != int64(1) || at(scale, "status.selector") != "a=b" {
			t.Errorf("scale: %v", scale.Object)
		}
		if _, err := c.Update(t.Context(), set(t, scale, "spec.replicas", int64(5)), metav1.UpdateOptions{}, "scale"); err != nil {
			t.Error(err)
		}
		if u := get(t, c, "scale"); at(u, "spec.birds") != int64(5) || u.GetGeneration() != 2 {
			t.Errorf("after scaling: %v", u.Object)
		}
		if _, err := c.Patch(t.Context(), "scale", types.MergePatchType, []byte(`{"spec": {"replicas": -1}}`), metav1.PatchOptions{}, "scale"); !apierrors.IsInvalid(err) {
			t.Errorf("scaling to -1: %v", err)
		}
	})
	t.Run("selectable fields", func(t *testing.T) {
		t.Parallel()
		w, err := c.Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.colour=teal"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		create(t, c, flock("grey", "{colour: grey}"))
		create(t, c, flock("teal", "{colour: teal, birds: 77}"))
		for _, selector := range []string{"spec.colour=teal", "spec.birds=77", "spec.colour!=grey,spec.birds=77"} {
			list, err := c.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "teal" {
				t.Errorf("%s: %v, %v", selector, list, err)
			}
		}
		if e := <-w.ResultChan(); e.Type != "ADDED" || e.Object.(*unstructured.Unstructured).GetName() != "teal" {
			t.Errorf("watch: %v", e)
		}
		if _, err := c.Patch(t.Context(), "teal", types.MergePatchType, []byte(`{"spec": {"colour": "grey"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if e := <-w.ResultChan(); e.Type != "DELETED" {
			t.Errorf("watch of an object that left the selection: %v", e)
		}
		if _, err := c.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.tags=a"}); !apierrors.IsBadRequest(err) {
			t.Errorf("a field that is not selectable: %v", err)
		}
	})
	t.Run("table", func(t *testing.T) {
		t.Parallel()
		create(t, c, flock("table", "{birds: 8, colour: red}"))
		raw, err := p.rest(t).Get().AbsPath("/apis/example.com/v1/namespaces/default/flocks/table").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		table := metav1.Table{}
		if err := json.Unmarshal(raw, &table); err != nil || len(table.Rows) != 1 {
			t.Fatalf("%v: %s", err, raw)
		}
		var columns []string
		for _, c := range table.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
		if diff := cmp.Diff([]string{"Name", "Birds", "Colour", "Age"}, columns); diff != "" {
			t.Errorf("columns: -want +got:\n%s", diff)
		}
		if diff := cmp.Diff([]any{"table", float64(8), "red"}, table.Rows[0].Cells[:3]); diff != "" {
			t.Errorf("cells: -want +got:\n%s", diff)
		}
	})
	t.Run("apply", func(t *testing.T) {
		t.Parallel()
		apply := func(manager, spec string, force bool) (*unstructured.Unstructured, error) {
			return c.Apply(t.Context(), "apply", object(t, flock("apply", spec)), metav1.ApplyOptions{FieldManager: manager, Force: force})
		}
		if _, err := apply("one", "{colour: red, tags: [a, b], ports: [{name: x, number: 1}], whole: [a]}", false); err != nil {
			t.Fatal(err)
		}
		u, err := apply("two", "{tags: [b, c], ports: [{name: z, number: 2}]}", false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]any{"a", "b", "c"}, at(u, "spec.tags")); diff != "" {
			t.Errorf("a set of two managers: -want +got:\n%s", diff)
		}
		ports := []any{map[string]any{"name": "x", "number": int64(1)}, map[string]any{"name": "z", "number": int64(2)}}
		if diff := cmp.Diff(ports, at(u, "spec.ports")); diff != "" {
			t.Errorf("a map of two managers: -want +got:\n%s", diff)
		}
		for _, spec := range []string{"{colour: blue}", "{whole: [b]}", "{ports: [{name: x, number: 3}]}"} {
			if _, err := apply("two", spec, false); !apierrors.IsConflict(err) {
				t.Errorf("%s of another manager: %v, want a conflict", spec, err)
			}
		}
		if u, err := apply("two", "{colour: blue}", true); err != nil || at(u, "spec.colour") != "blue" {
			t.Errorf("forced: %v, %v", u, err)
		}
		u, err = apply("one", "{tags: [a]}", false)
		if err != nil {
			t.Fatal(err)
		}
		if at(u, "spec.ports") != nil || at(u, "spec.whole") != nil || at(u, "spec.colour") != "blue" {
			t.Errorf("what nobody applies any more stays, or what somebody does not: %v", u.Object)
		}
		for _, spec := range []string{"{tags: [a, a]}", "{ports: [{name: x}, {name: x}]}"} {
			if _, err := c.Create(t.Context(), object(t, flock("twice", spec)), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v, want a 422 for the duplicate", spec, err)
			}
		}
	})
}
