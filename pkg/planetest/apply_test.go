package planetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

const widget = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: lever}
spec: {size: 42}
`

// TestApply: objects come from anywhere, in any order.
func TestApply(t *testing.T) {
	t.Parallel()
	definition, err := os.ReadFile("../../config/samples/widgets-crd.yaml")
	must(t, err)
	file := filepath.Join(t.TempDir(), "list.yaml")
	must(t, os.WriteFile(file, []byte(`
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: late}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: second}}
---
# nothing
---
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}}
`), 0o600))
	files := fstest.MapFS{
		"a/widget.yaml": {Data: []byte(widget)}, "b/crd.yml": {Data: definition}, "readme.md": {Data: []byte("# no object")},
	}
	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces(), crd.Definitions{})
	applied := plane.Apply(t, planetest.FS(files), planetest.Files(file),
		planetest.Objects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "third"}, Data: map[string]string{"a": "1"}}))
	var names []string
	for _, o := range applied {
		names = append(names, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
	}
	want := []string{
		"Widget default/lever", "CustomResourceDefinition /widgets.example.com", "ConfigMap late/first", "ConfigMap default/second",
		"Namespace /late", "ConfigMap default/third",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if colour, _, _ := unstructured.NestedString(applied[0].Object, "spec", "colour"); colour != "green" {
		t.Errorf("the answer has the colour %q, want the default", colour)
	}
	if got := applied[0].GetManagedFields()[0]; got.Manager != planetest.FieldManager || got.Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managed by %+v", got)
	}

	plane.Apply(t, planetest.Objects(applied[0])) // what was read can be applied
	in := plane.In("late").Apply(t, planetest.YAML(widget))
	if in[0].GetNamespace() != "late" {
		t.Errorf("in namespace %s", in[0].GetNamespace())
	}
}

func TestApplyFails(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true}.Start(t, few())
	tests := map[string]struct {
		reason string
		source planetest.Source
		wants  []string
	}{
		"syntax":  {"the document is named", planetest.YAML(widget + "---\na: b: c"), []string{"document 2"}},
		"twice":   {"a key that is given twice is a mistake", planetest.YAML("a: 1\na: 2"), []string{"document 1", `"a" already`}},
		"no kind": {"an object says what it is", planetest.YAML("metadata: {name: x}"), []string{"kind is missing"}},
		"no name": {"the server would say it less well", planetest.YAML("{apiVersion: v1, kind: ConfigMap}"), []string{"metadata.name"}},
		"unknown": {"a kind that is not served", planetest.YAML("{apiVersion: a.b/v1, kind: C, metadata: {name: x}}"), []string{"C x", "no matches"}},
		"field":   {"a field that is misspelt", planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, dada: {}}"), []string{"ConfigMap x", "dada"}},
		"invalid": {"the server's answer", planetest.YAML("{apiVersion: example.com/v1, kind: Widget, metadata: {name: x}, spec: {size: 0}}"), []string{"Widget x", "spec.size"}},
		"file":    {"a file that is not there", planetest.Files("nowhere/*.yaml"), []string{"nowhere/*.yaml: no such file"}},
		"type":    {"a Go type nobody knows", planetest.Objects(&unknown{}), []string{"unknown has no apiVersion and kind"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := failure(t, func(t planetest.TB) { plane.Apply(t, test.source) })
			contains(t, got, test.wants...)
			if t.Failed() {
				t.Log(test.reason)
			}
		})
	}
}

type unknown struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

func (u *unknown) DeepCopyObject() runtime.Object { c := *u; return &c }

// TestScheme: a Go type needs no kind when its scheme is known.
func TestScheme(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, &unknown{})
	plane := planetest.Options{NoDefaults: true, Scheme: scheme}.Start(t, few())
	o := &unknown{ObjectMeta: metav1.ObjectMeta{Name: "typed"}}
	plane.Apply(t, planetest.Objects(o))
	plane.WaitFor(t, o, planetest.Exists())
}

// TestWaitFor: no state of an object is missed, and an object may come later.
func TestWaitFor(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true}.Start(t, few())
	lever := planetest.Object("example.com/v1", "Widget", "default/lever")
	widgets := plane.Dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	looked := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		<-looked
		made, err := widgets.Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "lever"}, "spec": map[string]any{"size": int64(1)},
		}}, metav1.CreateOptions{})
		for _, phase := range []string{"Ready", "Over"} {
			if err == nil {
				made.Object["status"] = map[string]any{"phase": phase}
				made, err = widgets.UpdateStatus(context.Background(), made, metav1.UpdateOptions{})
			}
		}
		if err == nil {
			err = widgets.Delete(context.Background(), "lever", metav1.DeleteOptions{})
		}
		done <- err
	}()
	begin := sync.OnceFunc(func() { close(looked) })
	got := plane.WaitFor(t, lever, func(*unstructured.Unstructured) error { begin(); return nil }, planetest.JSONPath(".status.phase", "Ready"))
	if got == nil || got.GetName() != "lever" {
		t.Errorf("got %v", got)
	}
	if got := plane.WaitFor(t, lever, planetest.Gone()); got != nil {
		t.Errorf("got %v", got)
	}
	must(t, <-done)
}

func TestChecks(t *testing.T) {
	t.Parallel()
	object := func(status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(2)}, "status": status}}
	}
	conditions := func(c map[string]any) *unstructured.Unstructured {
		return object(map[string]any{"conditions": []any{c}})
	}
	tests := map[string]struct {
		check  planetest.Check
		object *unstructured.Unstructured
		want   string // "" when it holds
	}{
		"exists":            {planetest.Exists(), object(nil), ""},
		"exists not":        {planetest.Exists(), nil, "does not exist"},
		"gone":              {planetest.Gone(), nil, ""},
		"gone not":          {planetest.Gone(), object(nil), "still exists"},
		"condition":         {planetest.Condition("Ready"), conditions(map[string]any{"type": "Ready", "status": "True"}), ""},
		"condition false":   {planetest.Condition("Ready", "False"), conditions(map[string]any{"type": "Ready", "status": "False"}), ""},
		"condition not":     {planetest.Condition("Ready"), conditions(map[string]any{"type": "Ready", "status": "False", "reason": "Late"}), "is False, want True: Late"},
		"condition of past": {planetest.Condition("Ready"), conditions(map[string]any{"type": "Ready", "status": "True", "observedGeneration": int64(1)}), "for generation 1, but the object has generation 2"},
		"condition missing": {planetest.Condition("Ready"), conditions(map[string]any{"type": "Done", "status": "True"}), "no condition Ready"},
		"path":              {planetest.JSONPath(".status.phase", "Ready"), object(map[string]any{"phase": "Ready"}), ""},
		"path in braces":    {planetest.JSONPath("{.status.a}-{.status.b}", "1-2"), object(map[string]any{"a": "1", "b": int64(2)}), ""},
		"path missing":      {planetest.JSONPath(".status.phase", "Ready"), object(nil), `is "", want "Ready"`},
		"path broken":       {planetest.JSONPath("{.status[", "x"), object(nil), "JSONPath"},
		"path of nothing":   {planetest.JSONPath(".status.phase", ""), nil, "does not exist"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.check(test.object)
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" {
				contains(t, fmt.Sprint(err), test.want)
			}
		})
	}
}

// TestWaitForFails: the message has what lacks and the object.
func TestWaitForFails(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true}.Start(t, few())
	plane.Apply(t, planetest.YAML(widget))
	impatient(t, plane, func(t planetest.TB, plane *planetest.Plane) {
		plane.WaitFor(t, planetest.Object("example.com/v1", "Widget", "lever"), planetest.Condition("Ready"))
	}, "Widget default/lever", "no condition Ready", "size: 42")
}

func TestEventually(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true}.Start(t, few())
	get := func(ctx context.Context) error {
		_, err := plane.Client().CoreV1().ConfigMaps("default").Get(ctx, "x", metav1.GetOptions{})
		return err
	}
	absent := func(ctx context.Context) error {
		if err := get(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	}
	plane.Consistently(t, 50*time.Millisecond, absent)
	impatient(t, plane, func(t planetest.TB, plane *planetest.Plane) { plane.Eventually(t, get) }, `"x" not found`)

	calls := 0
	plane.Eventually(t, func(ctx context.Context) error {
		if calls++; calls == 1 {
			plane.Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"))
			return errors.New("again")
		}
		return get(ctx)
	})
	got := failure(t, func(t planetest.TB) { plane.Consistently(t, time.Minute, absent) })
	contains(t, got, "failed after", "it is there")
}
