package crd_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// limitedDefinition is a CRD whose versions have so many schemas each, at least four, and rules.
func limitedDefinition(t *testing.T, name string, versions, schemas, rules int) *unstructured.Unstructured {
	t.Helper()
	var all []string
	for v := range versions {
		var properties, validations []string
		// One is the object's and one spec's; one is that of "tags" and one of its items.
		for i := range schemas - 4 {
			properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
		}
		properties = append(properties, `"tags":{"type":"array","items":{"type":"string"}}`)
		for range rules {
			validations = append(validations, `{"rule":"true"}`)
		}
		all = append(all, fmt.Sprintf(`{"name":"v%d","served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","properties":`+
			`{"spec":{"type":"object","x-kubernetes-validations":[%s],"properties":{%s}}}}}}`,
			v+1, v == 0, strings.Join(validations, ","), strings.Join(properties, ",")))
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
		`"metadata":{"name":"%[1]s.limits.example.com"},"spec":{"group":"limits.example.com","scope":"Namespaced",`+
		`"names":{"plural":"%[1]s","kind":"%[2]s"},"versions":[%[3]s]}}`, name, "K"+name, strings.Join(all, ","))); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestLimits: what is above a limit is refused, and what is there is never made unusable.
func TestLimits(t *testing.T) {
	t.Parallel()
	given, err := yaml.Marshal(limitedDefinition(t, "givens", 1, 60, 0).Object)
	if err != nil {
		t.Fatal(err)
	}
	client, _ := serveAs(t, "jane", aggregator.APIServices{}, crd.Definitions{
		FS:     fstest.MapFS{"given.yaml": {Data: given}},
		Limits: crd.Limits{Schemas: 50, Rules: 3, AllSchemas: 150},
	})
	c := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	create := func(name string, versions, schemas, rules int) error {
		_, err := c.Create(t.Context(), limitedDefinition(t, name, versions, schemas, rules), metav1.CreateOptions{})
		return err
	}
	says := func(err error, is func(error) bool, words string) {
		t.Helper()
		if !is(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: want one that says %q", err, words)
		}
	}
	says(create("larges", 1, 51, 0), apierrors.IsInvalid, "51 schemas in all versions together, and at most 50")
	says(create("doubles", 2, 26, 0), apierrors.IsInvalid, "52 schemas")
	says(create("strict", 1, 10, 4), apierrors.IsInvalid, "4 x-kubernetes-validations in all versions together, and at most 3")
	if err := create("fits", 2, 25, 1); err != nil {
		t.Fatal(err)
	}
	update := func(name, path string, value any) error {
		t.Helper()
		patch := fmt.Sprintf(`[{"op":"add","path":%q,"value":%s}]`, path, value)
		_, err := c.Patch(t.Context(), name+".limits.example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	const more = "/spec/versions/0/schema/openAPIV3Schema/properties/more"
	says(update("fits", more, `{"type":"string"}`), apierrors.IsInvalid, "51 schemas")
	says(update("givens", more, `{"type":"string"}`), apierrors.IsInvalid, "61 schemas")
	if err := update("givens", "/metadata/labels", `{"a":"b"}`); err != nil {
		t.Errorf("a CRD that is above the limit: %v", err)
	}
	w, err := c.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	await(t, w, func(e watch.Event) bool { // then the server has it in memory
		u := e.Object.(*unstructured.Unstructured)
		return u.GetName() == "fits.limits.example.com" && established(u)
	})
	says(create("forbidden", 1, 45, 0), apierrors.IsForbidden, "it has 45 schemas, and all other CRDs of the server have 110: together they may have 150")
	if err := create("lasts", 1, 40, 0); err != nil {
		t.Errorf("what fits: %v", err)
	}
}

// TestWrongLimits: a limit without a meaning is found by Build.
func TestWrongLimits(t *testing.T) {
	t.Parallel()
	_, err := controlplane.New(t.Name()).Storage(memory.Store{}).
		With(aggregator.APIServices{}, crd.Definitions{Limits: crd.Limits{Rules: -2}}).Build()
	if err == nil || !strings.Contains(err.Error(), "Limits.Rules is -2") {
		t.Errorf("%v", err)
	}
}
