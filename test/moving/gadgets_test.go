//go:build unix

package moving

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// versions are those of gadgets. Each is stored in turn, and an object is written meanwhile.
func versions() []string { return []string{"v1", "v2"} }

// gadgets are custom resources that are stored in several versions.
type gadgets struct{ api dynamic.Interface }

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

func (g gadgets) in(version string) dynamic.ResourceInterface {
	return g.api.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "gadgets"}).Namespace("default")
}

// definition is that of gadgets, of which one version is stored.
func definition(stored string) *unstructured.Unstructured {
	var all []any
	for _, v := range versions() {
		all = append(all, map[string]any{
			"name": v, "served": true, "storage": v == stored,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "gadgets", "kind": "Gadget"}, "versions": all,
		},
	}}
}

// newGadgets writes gadgets until each version has one that is stored in it.
func newGadgets(t *testing.T, c *rest.Config, kubeconfig string) gadgets {
	t.Helper()
	api, err := dynamic.NewForConfig(c)
	must(t, err)
	g := gadgets{api}
	for _, stored := range versions() {
		_, err := api.Resource(definitions()).Apply(t.Context(), "gadgets.example.com", definition(stored), metav1.ApplyOptions{FieldManager: "test"})
		must(t, err)
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/" + stored, "kind": "Gadget", "metadata": map[string]any{"name": "written-as-" + stored}, "n": stored,
		}}
		must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			_, err := g.in(stored).Create(ctx, o, metav1.CreateOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil // it is not served yet
			}
			if err != nil {
				return false, err
			}
			if n, err := inVersion(ctx, stored, kubeconfig); n == 1 || err != nil {
				return true, err
			}
			return false, g.in(stored).Delete(ctx, o.GetName(), metav1.DeleteOptions{}) // the other version is stored still
		}))
	}
	return g
}

// inVersion is how many gadgets are stored in a version.
func inVersion(ctx context.Context, version, kubeconfig string) (int, error) {
	out, err := exec.CommandContext(ctx, sailplane(), "storage", "check", "--kubeconfig", kubeconfig, "--output", "json").Output()
	if err != nil {
		return 0, err
	}
	var survey struct{ Versions map[string]map[string]int }
	err = json.Unmarshal(out, &survey)
	return survey.Versions["gadgets.example.com"][version], err
}

// there returns an error unless every gadget can be read in every version.
func (g gadgets) there(ctx context.Context) error {
	for _, version := range versions() {
		for _, stored := range versions() {
			o, err := g.in(version).Get(ctx, "written-as-"+stored, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if o.Object["n"] != stored || o.GetAPIVersion() != "example.com/"+version {
				return fmt.Errorf("the gadget that was written as %s is in %s: %v", stored, version, o.Object)
			}
		}
	}
	return nil
}
