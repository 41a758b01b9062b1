package kube_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// gates: kube-apiserver drops the fields of features that are off by default.
func gates(t *testing.T, config *rest.Config) {
	const responders = `"evictionResponders":[{"name":"example.com/a","priority":5000}],`
	for name, body := range minimal {
		where := ""
		switch {
		case strings.Contains(body, `"containers":[`):
			where, body = "evictionResponders", strings.Replace(body, `"containers":[`, responders+`"containers":[`, 1)
		case name == "nodes":
			where, body = "podPreemptionPolicy", `{"spec":{"podPreemptionPolicy":{"disableResizePreemption":["a"]}}}`
		case name == "resourceslices.resource.k8s.io":
			where, body = "skipNodeOperations", strings.Replace(body, `"driver"`, `"skipNodeOperations":["NodePrepareResources"],"driver"`, 1)
		case strings.HasPrefix(name, "resourceclaim"):
			where = "derivedAttributes"
			body = strings.Replace(body, `"deviceClassName"`, `"derivedAttributes":[{"name":"example.com/a","expression":"1"}],"deviceClassName"`, 1)
		default:
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempt := try
			if slices.Contains(strings.Fields(served[name]), "C") {
				attempt = tryCluster
			}
			got, err := attempt(t, config, schema.ParseGroupResource(name).WithVersion("v1"), body)
			if err != nil {
				t.Fatal(err)
			}
			text, err := got.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `"`+where+`"`) {
				t.Errorf("%s is of a feature that is off: got %s", where, text)
			}
		})
	}
	t.Run("Status", func(t *testing.T) { statusGates(t, config) })
}

// statusGates does so in writes to /status.
func statusGates(t *testing.T, config *rest.Config) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, patch := range map[string]string{
		"pods":                    `{"status":{"message":"kept","volumeHealth":[{"name":"v"}],"nodeAllocatableResourceClaimStatuses":[{"resourceClaimName":"c"}]}}`,
		"persistentvolumeclaims":  `{"status":{"phase":"Bound","healthStatus":{"lastTransitionTime":"2026-01-01T00:00:00Z"}}}`,
		"csinodes.storage.k8s.io": `{"status":{"storageHealth":[{"name":"a"}]}}`,
	} {
		gr := schema.ParseGroupResource(name)
		object := &unstructured.Unstructured{Object: decode(t, minimal[name])}
		object.SetGroupVersionKind(gr.WithVersion("v1").GroupVersion().WithKind(strings.Fields(served[name])[1]))
		object.SetName("gates")
		resource := dynamic.ResourceInterface(client.Resource(gr.WithVersion("v1")))
		if slices.Contains(strings.Fields(served[name]), "N") {
			resource = client.Resource(gr.WithVersion("v1")).Namespace("gates")
		}
		if _, err := resource.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := resource.Patch(t.Context(), "gates", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		status, _, _ := unstructured.NestedMap(got.Object, "status")
		for _, field := range []string{"volumeHealth", "nodeAllocatableResourceClaimStatuses", "healthStatus", "storageHealth"} {
			if status[field] != nil {
				t.Errorf("%s: %s is of a feature that is off: got %v", name, field, status)
			}
		}
		if err := resource.Delete(t.Context(), "gates", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
