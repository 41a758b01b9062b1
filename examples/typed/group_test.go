package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sailplane-dev/sailplane/examples/typed/fruit/v1"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/verify"
)

func TestConversionsLoseNothing(t *testing.T) {
	t.Parallel()
	apitest.RoundTrip(t, fruits())
}

// TestKeepsConventions serves the group in the process of the test, and looks for what clients
// would stumble over.
func TestKeepsConventions(t *testing.T) {
	t.Parallel()
	report, err := verify.Run(t.Context(), verify.Options{
		Config:  planetest.Start(t, fruits()).Config(),
		Groups:  []string{v1.GroupVersion().Group},
		Samples: []*unstructured.Unstructured{boskoop("v1", "variety"), boskoop("v1alpha1", "sort")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Failed() {
		t.Error(r)
	}
	if n := report.Count(verify.Passed); n < 100 {
		t.Errorf("%d checks passed: does the server take the samples?", n)
	}
}

// boskoop is a good apple of a version.
func boskoop(version, field string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fruit.example.com/" + version, "kind": "Apple", "spec": map[string]any{field: "Boskoop"},
	}}
}
