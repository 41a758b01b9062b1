package planetest_test

import (
	"context"
	"maps"
	"os"
	"testing"
	"testing/fstest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// widgets are the CRD of config, where a schema, defaults and a rule are.
func widgetCRD() planetest.Source { return planetest.Files("../../config/samples/*crd.yaml") }

func aWidget(spec string) string {
	return "{apiVersion: example.com/v1, kind: Widget, spec: " + spec + "}"
}

func named(name, spec string) string {
	return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: " + name + "}, spec: " + spec + "}"
}

// TestCRDAccepts: a table of objects, each in a test of its own.
func TestCRDAccepts(t *testing.T) {
	t.Parallel()
	crd := planetest.CRD(t, widgetCRD())
	tests := map[string]struct {
		reason, object string
		rejected       []string // nil: accepted
	}{
		"smallest":  {"the minimum is part of the range", aWidget("{size: 1}"), nil},
		"too small": {"the minimum is part of the schema", aWidget("{size: 0}"), []string{"spec.size", "greater than or equal to 1"}},
		"missing":   {"a field is required", aWidget("{colour: red}"), []string{"spec.size: Required value"}},
		"type":      {"a field has a type", aWidget("{size: large}"), []string{`must be of type integer: "string"`}},
		"rule":      {"CEL rules are asked", aWidget("{size: 100, colour: red}"), []string{"red widgets are shorter than 100"}},
		"unknown":   {"typing errors are found", aWidget("{size: 1, color: red}"), []string{`unknown field "spec.color"`}},
		"status": {
			"the schema of the status is asked, though creation ignores it",
			"{apiVersion: example.com/v1, kind: Widget, spec: {size: 1}, status: {phase: 1}}",
			[]string{"status.phase"},
		},
		"good status": {
			"a status is no reason to refuse", "{apiVersion: example.com/v1, kind: Widget, spec: {size: 1}, status: {phase: Ready}}", nil,
		},
		"named": {
			"the name and namespace may be given",
			"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, namespace: default, finalizers: [example.com/x]}, spec: {size: 1}}", nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.rejected == nil {
				crd.For(t).Accepts(test.object)
			} else {
				crd.For(t).Rejects(test.object, test.rejected...)
			}
			if t.Failed() {
				t.Log(test.reason)
			}
		})
	}
	t.Cleanup(func() {
		list, err := crd.Plane().Dynamic().Resource(resourceOfWidgets()).List(context.WithoutCancel(t.Context()), metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != 0 {
			t.Errorf("%d objects are left", len(list.Items))
		}
	})
}

func TestCRDDefaults(t *testing.T) {
	t.Parallel()
	planetest.CRD(t, widgetCRD()).
		Defaults(aWidget("{size: 1}"), aWidget("{size: 1, colour: green}")).
		Defaults(aWidget("{size: 1, colour: blue}"), aWidget("{size: 1, colour: blue}")).
		Defaults(
			"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, labels: {x: z}}, spec: {size: 1}, status: {phase: Ready}}",
			"{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, labels: {x: z}}, spec: {size: 1, colour: green}, status: {phase: Ready}}")
}

// Typed is a Go type as projects generate them, without what makes it an object of
// package runtime.
type Typed struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
}

// Object is a Go type of package runtime.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              map[string]int `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (o *Object) DeepCopyObject() runtime.Object {
	out := *o
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = maps.Clone(o.Spec)
	return &out
}

// TestCRDForms: objects and CRDs may be given in many forms.
func TestCRDForms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../config/samples/widgets-crd.yaml")
	must(t, err)
	typed := &apiextensionsv1.CustomResourceDefinition{}
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(parse(t, string(text)).Object, typed))
	noMeta := typed.DeepCopy()
	noMeta.TypeMeta = metav1.TypeMeta{}
	for name, crd := range map[string]planetest.Source{
		"text": planetest.YAML(string(text)), "files": widgetCRD(), "fs": planetest.FS(fstest.MapFS{"a/b.yaml": {Data: text}}),
		"typed": planetest.Objects(typed), "typed without a kind": planetest.Objects(noMeta), "unstructured": planetest.Objects(parse(t, string(text))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planetest.CRD(t, crd).Accepts(aWidget("{size: 1}"))
		})
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, &Object{})
	crd := planetest.Options{Scheme: scheme}.CRD(t, widgetCRD())
	crd.Accepts(&Object{Spec: map[string]int{"size": 1}}).Rejects(&Object{Spec: map[string]int{"size": 0}}, "spec.size")
	value := Typed{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"}}
	value.Spec.Size = 7
	crd.Accepts(
		aWidget("{size: 1}"), []byte(aWidget("{size: 1}")), value, &value, parse(t, aWidget("{size: 1}")),
		map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]int32{"size": 1}})
	value.Spec.Size = 1001
	crd.Rejects(value, "less than or equal to 1000")
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	must(t, yamlUnmarshal([]byte(text), &u.Object))
	return u
}

// TestCRDOfAPlane: the CRDs of a plane of the test's are tested there, with its
// admission.
func TestCRDOfAPlane(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true}.Start(t, few())
	crd := plane.CRD(t, widgetCRD())
	crd.Accepts(aWidget("{size: 1}"))
	before, err := plane.Dynamic().Resource(definitionsResource()).Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
	must(t, err)
	if before.GetGeneration() != 1 {
		t.Errorf("the same CRD was written again: generation %d", before.GetGeneration())
	}
}

// TestCRDFails: what is not as the test says fails it, and says why.
func TestCRDFails(t *testing.T) {
	t.Parallel()
	crd := planetest.CRD(t, widgetCRD())
	tests := map[string]struct {
		reason string
		run    func(d *planetest.Definition)
		want   []string
	}{
		"accepts": {
			"the reason and the object are shown", func(d *planetest.Definition) { d.Accepts(aWidget("{size: 0}")) },
			[]string{"Widget test is not accepted", "greater than or equal to 1", "size: 0"},
		},
		"rejects": {
			"the object is shown", func(d *planetest.Definition) { d.Rejects(aWidget("{size: 1}"), "too small") },
			[]string{`Widget test is accepted, want it rejected because of ["too small"]`, "size: 1"},
		},
		"rejects for another reason": {
			"a test for one rule must not pass by another", func(d *planetest.Definition) { d.Rejects(aWidget("{size: 0}"), "red") },
			[]string{`not because of "red"`, "greater than or equal to 1"},
		},
		"defaults": {
			"the difference is shown", func(d *planetest.Definition) { d.Defaults(aWidget("{size: 1}"), aWidget("{size: 1, colour: red}")) },
			[]string{"-   colour: red", "+   colour: green"},
		},
		"defaults of what is refused": {
			"an object that is refused has none", func(d *planetest.Definition) { d.Defaults(aWidget("{size: 0}"), aWidget("{size: 0}")) },
			[]string{"not accepted"},
		},
		"another kind": {
			"what is not served cannot pass as rejected", func(d *planetest.Definition) { d.Rejects("{apiVersion: example.com/v2, kind: Widget}") },
			[]string{"example.com/v2 Widget is not served", "example.com/v1 Widget"},
		},
		"two objects":  {"the second would not be looked at", func(d *planetest.Definition) { d.Accepts(aWidget("{size: 1}") + "\n---\n" + aWidget("{size: 1}")) }, []string{"2 objects"}},
		"nothing":      {"nil is no object", func(d *planetest.Definition) { d.Accepts(nil) }, []string{"nil"}},
		"not stored":   {"there is nothing to update", func(d *planetest.Definition) { d.RejectsUpdate(named("missing", "{size: 1}")) }, []string{"store it first"}},
		"stores":       {"what is stored must be valid", func(d *planetest.Definition) { d.Stores(named("bad", "{size: 0}")) }, []string{"store Widget bad"}},
		"no name":      {"nobody could name it later", func(d *planetest.Definition) { d.Stores(aWidget("{size: 1}")) }, []string{"needs a name"}},
		"reads":        {"what is not there cannot be read", func(d *planetest.Definition) { d.Reads(named("missing", "{size: 1}")) }, []string{"not found"}},
		"converts":     {"a version must be served", func(d *planetest.Definition) { d.Converts(aWidget("{size: 1}"), "v7", aWidget("{size: 1}")) }, []string{"example.com/v7 Widget is not served"}},
		"no CRD":       {"an update needs a CRD", func(d *planetest.Definition) { d.Update(planetest.YAML(aWidget("{size: 1}"))) }, []string{"not a CRD of apiextensions"}},
		"empty source": {"an update needs a CRD", func(d *planetest.Definition) { d.Update(planetest.YAML("")) }, []string{"no CRD in the source"}},
		"versions":     {"the stored versions are shown", func(d *planetest.Definition) { d.StoredVersions("v2") }, []string{`["v1"], want ["v2"]`}},
		"takes":        {"an update that is taken is not refused", func(d *planetest.Definition) { d.RefusesToUpdate(widgetCRD()) }, []string{"is accepted, want it rejected"}},
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
