package crd_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// TestLateCache: the watch cache of custom resources is made when they are first
// listed or watched, which nobody can tell.
func TestLateCache(t *testing.T) {
	t.Parallel()
	first := func(first, _ string) string { return first }
	listed := func(_, listed string) string { return listed }
	cases := map[string]struct {
		reason string
		list   *metav1.ListOptions // before anything is watched
		from   func(first, listed string) string
		want   []string
	}{
		"from the first object": {
			reason: "what happened before the cache was made is in the storage",
			from:   first, want: []string{"b", "c", "d"},
		},
		"from the first object, listed": {
			reason: "the cache that the list made does not have the events before it",
			list:   &metav1.ListOptions{}, from: first, want: []string{"b", "c", "d"},
		},
		"from a list": {
			reason: "informers do so",
			list:   &metav1.ListOptions{}, from: listed, want: []string{"d"},
		},
		"from a list of any version": {
			reason: "informers do so, too",
			list:   &metav1.ListOptions{ResourceVersion: "0"}, from: listed, want: []string{"d"},
		},
		"from what there is": {
			reason: "no version asks for all objects first",
			from:   func(string, string) string { return "" }, want: []string{"a", "b", "c", "d"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			p.define(t, definition(t, "widgets", "Widget", `
versions:
- {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}`))
			widgets := p.of("widgets", "v1")
			create := func(name string) *unstructured.Unstructured {
				t.Helper()
				o, err := widgets.Create(t.Context(), object(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: `+name+`}}`), metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			first := create("a")
			create("b")
			create("c")
			listed := ""
			if tc.list != nil {
				list, err := widgets.List(t.Context(), *tc.list)
				if err != nil || len(list.Items) != 3 {
					t.Fatalf("%s: list: %v, %v", tc.reason, list, err)
				}
				listed = list.GetResourceVersion()
			}
			w, err := widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: tc.from(first.GetResourceVersion(), listed)})
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			defer w.Stop()
			create("d")
			for _, want := range tc.want {
				e := <-w.ResultChan()
				o, ok := e.Object.(*unstructured.Unstructured)
				if e.Type != watch.Added || !ok || o.GetName() != want {
					t.Fatalf("%s: event %v, want %s", tc.reason, e, want)
				}
			}
		})
	}
}
