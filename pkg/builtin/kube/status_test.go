package kube_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// statusMetadata has what a write to /status changes of metadata, as in Kubernetes.
func statusMetadata(t *testing.T, config *rest.Config) {
	const all = "annotations finalizers labels ownerReferences"
	cases := map[string]struct {
		reason, changes string
	}{
		"":                 {"a status goes with annotations and finalizers of its controller", all},
		"pods":             {"kubelets once broke the owners", "annotations finalizers labels"},
		"deployments.apps": {"old controllers wrote labels of the pods", "annotations finalizers ownerReferences"},

		"servicecidrs.networking.k8s.io":                           {"newer kinds keep metadata", ""},
		"volumeattachments.storage.k8s.io":                         {"newer kinds keep metadata", ""},
		"resourceclaims.resource.k8s.io":                           {"newer kinds keep metadata", ""},
		"csinodes.storage.k8s.io":                                  {"newer kinds keep metadata", ""},
		"devicetaintrules.resource.k8s.io":                         {"newer kinds keep metadata", ""},
		"storageversionmigrations.storagemigration.k8s.io":         {"newer kinds keep metadata", ""},
		"flowschemas.flowcontrol.apiserver.k8s.io":                 {"newer kinds keep metadata", ""},
		"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {"newer kinds keep metadata", ""},
	}
	found := discovered(t, config)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if r := found[name]; slices.Contains(r.subresources, "status") {
			c, ok := cases[name]
			if !ok {
				c = cases[""]
			}
			got := metadataByStatus(t, config, name, r)
			if diff := cmp.Diff(strings.Fields(c.changes), got); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
			}
		}
	}
}

func discovered(t *testing.T, config *rest.Config) map[string]found {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return discover(t, client)
}

// metadataByStatus are the fields of metadata that a write to /status changed
// and then owns.
func metadataByStatus(t *testing.T, config *rest.Config, name string, r found) []string {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resource := dynamic.ResourceInterface(client.Resource(r.gv.WithResource(r.Name)))
	if r.Namespaced {
		resource = client.Resource(r.gv.WithResource(r.Name)).Namespace("metadata")
	}
	object := &unstructured.Unstructured{Object: decode(t, minimal[name])}
	object.SetGroupVersionKind(r.gv.WithKind(r.Kind))
	object.SetName("by-status")
	object.SetAnnotations(map[string]string{"created": "so"}) // nobody owns anything in an object without a field
	created, err := resource.Create(t.Context(), object, metav1.CreateOptions{FieldManager: "creator"})
	if err != nil {
		t.Fatalf("%s: create: %v", name, err)
	}
	defer func() {
		_, _ = resource.Patch(t.Context(), "by-status", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = resource.Delete(t.Context(), "by-status", metav1.DeleteOptions{})
	}()
	patch := []byte(`{"metadata":{"annotations":{"a":"b"},"labels":{"c":"d"},"finalizers":["example.com/f"],` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"n","uid":"u"}]}}`)
	got, err := resource.Patch(t.Context(), "by-status", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "status"}, "status")
	if err != nil {
		t.Fatalf("%s: patch of /status: %v", name, err)
	}
	var changed, owned []string
	for _, field := range []string{"annotations", "finalizers", "labels", "ownerReferences"} {
		is, _, _ := unstructured.NestedFieldNoCopy(got.Object, "metadata", field)
		was, _, _ := unstructured.NestedFieldNoCopy(created.Object, "metadata", field)
		if !cmp.Equal(is, was) {
			changed = append(changed, field)
		}
		for _, m := range got.GetManagedFields() {
			if m.Manager == "status" && m.Subresource == "status" && strings.Contains(m.FieldsV1.GetRawString(), `"f:`+field+`"`) {
				owned = append(owned, field)
			}
		}
	}
	if diff := cmp.Diff(changed, owned); diff != "" {
		t.Errorf("%s: who writes a field owns it (-changed +owned):\n%s", name, diff)
	}
	if changed == nil {
		return []string{}
	}
	return changed
}
