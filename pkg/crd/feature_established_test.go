package crd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// testAgent is the user agent of clients whose watches are not delayed.
const testAgent = "a client that is told first"

// delay is how long the server's own informers are told later than the test.
const delay = 150 * time.Millisecond

// delayed has watches of CRDs and APIServices delayed, but those of the test.
func delayed() controlplane.Part {
	return controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Wrap(controlplane.Innermost, "delayed watches", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				info, ok := request.RequestInfoFrom(r.Context())
				own := ok && info.Verb == "watch" && strings.HasSuffix(info.APIGroup, "k8s.io") && r.UserAgent() != testAgent
				if own {
					w = responsewriter.WrapForHTTP1Or2(slow{w})
				}
				next.ServeHTTP(w, r)
			})
		})
		return nil
	})
}

// slow writes late.
type slow struct{ http.ResponseWriter }

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(delay)
	return s.ResponseWriter.Write(b)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (s slow) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// startDelayed starts a plane that is told late, with a client that is not, and a CRD to
// create.
func startDelayed(t *testing.T) (plane, dynamic.Interface, *unstructured.Unstructured) {
	t.Helper()
	p := start(t, delayed())
	p.config.UserAgent = testAgent
	c, err := dynamic.NewForConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	p.DynamicClient = c
	return p, c, definition(t, "widgets", "Widget", `
versions:
- {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, description: what it is}}}}}`)
}

// TestEstablishedIsUsable: who has seen that a CRD is established finds its resource
// in every way, and who has seen it deleted in none, however late the server's own
// informers are.
func TestEstablishedIsUsable(t *testing.T) {
	t.Parallel()
	p, c, def := startDelayed(t)
	w, err := c.Resource(crds).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	listed(t, p, nil) // the APIServices are registered from now on
	created, err := c.Resource(crds).Create(t.Context(), def, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := await(t, w, func(e watch.Event) bool { return established(e.Object.(*unstructured.Unstructured)) })
	listed(t, p, everywhere)
	one := create(t, p.of("widgets", "v1"), `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}}`)
	get(t, p.of("widgets", "v1"), one.GetName())
	if at := transition(t, seen); at.Before(created.GetCreationTimestamp().Time) {
		t.Errorf("established at %v, before it was created at %v", at, created.GetCreationTimestamp())
	}
	if err := c.Resource(crds).Delete(t.Context(), def.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, w, func(e watch.Event) bool { return e.Type == watch.Deleted })
	listed(t, p, nil)
	if _, err := p.of("widgets", "v1").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("list objects of a CRD that is gone: %v", err)
	}
}

// TestWrittenIsUsable: the answer to who creates or changes a CRD comes when its resource
// can be used, however late the server's own informers are. It has the version that was
// written, so that a watch from there sees the condition.
func TestWrittenIsUsable(t *testing.T) {
	t.Parallel()
	p, c, def := startDelayed(t)
	listed(t, p, nil) // the APIServices are registered from now on
	written, err := c.Resource(crds).Create(t.Context(), def, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	listed(t, p, everywhere)
	create(t, p.of("widgets", "v1"), `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}}`)
	w, err := c.Resource(crds).Watch(t.Context(), metav1.ListOptions{ResourceVersion: written.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	await(t, w, func(e watch.Event) bool { return established(e.Object.(*unstructured.Unstructured)) })
	_, err = c.Resource(crds).Patch(t.Context(), written.GetName(), types.JSONPatchType, []byte(`[{"op": "add", "path": "/spec/versions/-",
		"value": {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	get(t, p.of("widgets", "v2"), "one")
	found, err := discovery.NewDiscoveryClientForConfigOrDie(p.config).ServerResourcesForGroupVersion("example.com/v2")
	if err != nil || len(found.APIResources) == 0 {
		t.Errorf("discovery has %v of the new version, %v", found, err)
	}
}

// TestWrittenIsServed: who has changed the schema of a CRD that is in use loses no field by it, and
// misses no version.
func TestWrittenIsServed(t *testing.T) {
	t.Parallel()
	p := start(t)
	for n := range 5 {
		plural := fmt.Sprintf("widgets%ds", n)
		t.Run(plural, func(t *testing.T) {
			t.Parallel()
			p.define(t, definition(t, plural, fmt.Sprintf("Widgets%d", n), plain))
			create(t, p.of(plural, "v1"), fmt.Sprintf(`{apiVersion: example.com/v1, kind: Widgets%d, metadata: {name: one}}`, n))
			for i := range 20 {
				version, field := fmt.Sprintf("v1beta%d", i+1), fmt.Sprintf("f%d", i)
				patch := fmt.Sprintf(`[{"op": "add", "path": "/spec/versions/-", "value": {"name": %q, "served": true, "storage": false,
					"schema": {"openAPIV3Schema": {"type": "object", "properties": {%q: {"type": "string"}}}}}},
					{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
					"value": {"type": "object", "properties": {%[2]q: {"type": "string"}}}}]`, version, field)
				if _, err := p.Resource(crds).Patch(t.Context(), plural+".example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				get(t, p.of(plural, version), "one")
				created := create(t, p.of(plural, "v1"), fmt.Sprintf(`{apiVersion: example.com/v1, kind: Widgets%d, metadata: {name: %s}, %[2]s: kept}`, n, field))
				if got := at(created, field); got != "kept" {
					t.Fatalf("the field %s is %v in what is stored: it was pruned as if the schema had not changed", field, got)
				}
			}
		})
	}
}

// TestChangeHasNoWarning: the answer to who changes a CRD that is in use warns of none of its versions.
func TestChangeHasNoWarning(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.define(t, definition(t, "widgets", "Widget", `
versions:
- {name: v1beta1, served: true, storage: false, deprecated: true, deprecationWarning: old, schema: {openAPIV3Schema: {type: object}}}
- {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}`))
	create(t, p.of("widgets", "v1"), `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}}`)
	said := &bytes.Buffer{}
	config := rest.CopyConfig(p.config)
	config.WarningHandler = rest.NewWarningWriter(said, rest.WarningWriterOptions{})
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Resource(crds).Patch(t.Context(), "widgets.example.com", types.JSONPatchType, []byte(`[{"op": "add",
		"path": "/spec/versions/0/schema/openAPIV3Schema/properties", "value": {"color": {"type": "string"}}}]`), metav1.PatchOptions{})
	if err != nil || said.Len() > 0 {
		t.Errorf("the change is answered with the warning %q, %v", said, err)
	}
}

// TestFewWrites: a new CRD is written twice, with its names and when it is usable: of a
// large one each write takes a second.
func TestFewWrites(t *testing.T) {
	t.Parallel()
	p := start(t)
	w, err := p.Resource(crds).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []string
	p.define(t, definition(t, "widgets", "Widget", plain))
	await(t, w, func(e watch.Event) bool {
		u := e.Object.(*unstructured.Unstructured)
		got = append(got, fmt.Sprintf("%s %v %t", e.Type, at(u, "status.acceptedNames.kind"), established(u)))
		return established(u)
	})
	want := []string{"ADDED Widget false", "MODIFIED Widget true"}
	if !slices.Equal(got, want) {
		t.Errorf("written: %q, want %q", got, want)
	}
}

// everywhere are the ways in which a client finds a resource.
var everywhere = []string{"a group", "a version", "aggregated discovery", "openapi v2", "openapi v3", "the list of groups"}

// listed compares the ways in which widgets are found.
func listed(t *testing.T, p plane, want []string) {
	t.Helper()
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	var got []string
	for name, ask := range map[string]struct{ path, accept, has string }{
		"the list of groups":   {"/apis", "application/json", `"example.com"`},
		"aggregated discovery": {"/apis", aggregated, `"widgets"`},
		"a group":              {"/apis/example.com", "application/json", `"example.com/v1"`},
		"a version":            {"/apis/example.com/v1", "application/json", `"widgets"`},
		"openapi v2":           {"/openapi/v2", "application/json", `"com.example.v1.Widget"`},
		"openapi v3":           {"/openapi/v3/apis/example.com/v1", "application/json", `"com.example.v1.Widget"`},
	} {
		data, err := p.rest(t).Get().AbsPath(ask.path).SetHeader("Accept", ask.accept).DoRaw(t.Context())
		if err == nil && strings.Contains(string(data), ask.has) {
			got = append(got, name)
		} else if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("widgets are found in %q, want %q", got, want)
	}
}

// await returns the object of the first event that is wanted.
func await(t *testing.T, w watch.Interface, wanted func(watch.Event) bool) *unstructured.Unstructured {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			if wanted(e) {
				return e.Object.(*unstructured.Unstructured)
			}
		case <-timeout:
			t.Fatalf("nothing happened in %v", patience)
		}
	}
}

// transition is when a CRD was established.
func transition(t *testing.T, def *unstructured.Unstructured) time.Time {
	t.Helper()
	var status struct {
		Status struct{ Conditions []metav1.Condition }
	}
	data, err := json.Marshal(def)
	if err == nil {
		err = json.Unmarshal(data, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.Status.Conditions {
		if c.Type == "Established" {
			return c.LastTransitionTime.Time
		}
	}
	t.Fatal("no condition")
	return time.Time{}
}
