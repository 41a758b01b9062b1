package kube_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
)

// TestAll runs against one server with everything: each sub-test works in
// names of its own.
func TestAll(t *testing.T) {
	config := serve(t, kube.All())
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	found := discover(t, client)
	got := map[string]string{}
	for name, r := range found {
		got[name] = r.String()
	}
	if diff := cmp.Diff(served, got); diff != "" {
		t.Errorf("discovery is as kube-apiserver's (-want +got):\n%s", diff)
	}
	for name, r := range found {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			life(t, config, name, r)
		})
	}
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"Protobuf":   protobuf,
		"Apply":      apply,
		"Scale":      scale,
		"Status":     status,
		"Metadata":   statusMetadata,
		"Evict":      evict,
		"Budgets":    evictWithBudget,
		"Races":      evictAtOnce,
		"Bind":       bind,
		"Defaults":   defaults,
		"Invalid":    invalid,
		"Immutable":  immutable,
		"Selectors":  selectors,
		"Graceful":   graceful,
		"OpenAPI":    openAPI,
		"Generation": generation,
		"Taints":     taints,
		"Migrations": migrations,
		"Gates":      gates,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, config)
		})
	}
}

// found is a resource in discovery.
type found struct {
	metav1.APIResource
	gv           schema.GroupVersion
	subresources []string
}

func (f found) String() string {
	scope := "C"
	if f.Namespaced {
		scope = "N"
	}
	words := []string{f.SingularName, f.Kind, orDash(f.ShortNames), orDash(f.Categories), scope}
	return strings.Join(append(words, f.subresources...), " ")
}

func orDash(words []string) string {
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}

func discover(t *testing.T, client *discovery.DiscoveryClient) map[string]found {
	t.Helper()
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]found{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		full, err := client.ServerResourcesForGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if r.Name == "bindings" {
				continue // which nobody reads: bindingResource looks at it
			}
			f := found{APIResource: r, gv: gv}
			for _, other := range full.APIResources {
				if sub, ok := strings.CutPrefix(other.Name, r.Name+"/"); ok {
					f.subresources = append(f.subresources, sub)
				}
			}
			slices.Sort(f.subresources)
			all[schema.GroupResource{Group: gv.Group, Resource: r.Name}.String()] = f
		}
	}
	return all
}

// life creates, gets, lists, prints and deletes the minimal object.
func life(t *testing.T, config *rest.Config, name string, r found) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resource := dynamic.ResourceInterface(client.Resource(r.gv.WithResource(r.Name)))
	if r.Namespaced {
		resource = client.Resource(r.gv.WithResource(r.Name)).Namespace("life")
	}
	object := &unstructured.Unstructured{Object: decode(t, minimal[name])}
	object.SetGroupVersionKind(r.gv.WithKind(r.Kind))
	object.SetName("a")
	if r.Name == "ipaddresses" {
		object.SetName("10.0.0.1")
	}
	created, err := resource.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	got, err := resource.Get(t.Context(), object.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if diff := cmp.Diff(created, got); diff != "" {
		t.Errorf("what is stored is what was answered (-created +got):\n%s", diff)
	}
	// Writing what was read changes nothing: defaults are complete and stable.
	again, err := resource.Update(t.Context(), got, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	if again.GetResourceVersion() != got.GetResourceVersion() {
		t.Errorf("an update with what was read changed it (-was +is):\n%s", cmp.Diff(got, again))
	}
	if text := strings.ReplaceAll(tableOf(t, config, r, object.GetName()), string(created.GetUID()), "UID"); text != printed[name] {
		t.Errorf("table:\n got %s\nwant %s", text, printed[name])
	}
	if err := resource.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete: %v", err)
	}
	list, err := resource.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + object.GetName()})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("after the delete none is left: got %v, %v", list, err)
	}
}

// tableOf is the one object of a resource as kubectl get -o wide prints it.
func tableOf(t *testing.T, config *rest.Config, r found, name string) string {
	t.Helper()
	path := "/apis/" + r.gv.String()
	if r.gv.Group == "" {
		path = "/api/v1"
	}
	if r.Namespaced {
		path += "/namespaces/life"
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := client.RESTClient().Get().AbsPath(path, r.Name).Param("fieldSelector", "metadata.name="+name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("table: %v", err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("table: got %d rows, want 1", len(table.Rows))
	}
	var cells []string
	for i, c := range table.ColumnDefinitions {
		if c.Name == "Age" {
			cells = append(cells, c.Name)
			continue
		}
		cells = append(cells, fmt.Sprintf("%s=%v", c.Name, table.Rows[0].Cells[i]))
	}
	return strings.Join(cells, " ")
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}
