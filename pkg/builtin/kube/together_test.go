package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
)

// TestTogether serves resources of core/v1 from two packages in one plane.
func TestTogether(t *testing.T) {
	config := serve(t, core.Namespaces{}, kube.Resources("pods", "deployments.apps"), core.ConfigMaps{})
	client := clients(t, config)
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), simplePod("a"), metav1.CreateOptions{}); err != nil {
		t.Errorf("create a pod: %v", err)
	}
	if _, err := client.CoreV1().Pods("missing").Create(t.Context(), simplePod("a"), metav1.CreateOptions{}); err == nil {
		t.Error("a pod needs its namespace")
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Errorf("create a configmap: %v", err)
	}
	patch := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"j"}]}}`)
	p, err := client.CoreV1().Pods("default").Patch(t.Context(), "a", types.ApplyPatchType, patch, metav1.PatchOptions{
		FieldManager: "m", Force: new(bool),
	})
	if err == nil {
		t.Errorf("an apply without force conflicts: got %v", p)
	}
	discovery, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	found := discover(t, discovery)
	for _, name := range []string{"pods", "configmaps", "namespaces"} {
		if _, ok := found[name]; !ok {
			t.Errorf("discovery has no %s", name)
		}
	}
	paths, err := discovery.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := paths["api/v1"].Schema("application/json"); err != nil {
		t.Errorf("OpenAPI of core/v1: %v", err)
	}
}
