package aggregator_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// conflicting is what condition Conflicting of an object says.
func conflicting(t *testing.T, config *rest.Config, resource schema.GroupVersionResource, name string) string {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	found, err := c.Resource(resource).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	status, _ := found.Object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Conflicting" {
			return fmt.Sprintf("%s: %s", c["status"], c["message"])
		}
	}
	return ""
}

// TestConflicts: what two claim says so on each, until one of them gives way.
func TestConflicts(t *testing.T) {
	t.Parallel()
	inner := orchard(t).Handler()
	config, _ := run(t, memory.Store{}, core.Events{}, aggregator.APIServices{Servers: []aggregator.Server{
		{Name: "shop/fruit", Handler: inner}, {Name: "shop/more", Handler: inner},
	}})
	apiServices := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	says := func(resource schema.GroupVersionResource, name string, words ...string) {
		t.Helper()
		eventually(t, "condition of "+name, func() error {
			got := conflicting(t, config, resource, name)
			for _, w := range words {
				if !strings.Contains(got, w) {
					return fmt.Errorf("it is %q, want %q in it", got, w)
				}
			}
			if len(words) == 0 && got != "" {
				return fmt.Errorf("it is %q, want none", got)
			}
			return nil
		})
	}
	// Two servers that the operator names: either may have been the first.
	says(apiServices, nameOfApples(), "True: ", "server shop/fruit", "server shop/more", "answers, and not")

	// An APIService wins over a CRD.
	define(t, config, "far.example.com", "v1", "v2")
	says(crds, "widgets.far.example.com")
	eventually(t, "an APIService for the version of the CRD", func() error { // its own one may be made meanwhile
		apiServices := services(t, config).ApiregistrationV1().APIServices()
		made, err := apiServices.Get(t.Context(), "v1.far.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		made.Labels, made.Spec = nil, remoteService(nil).Spec
		_, err = apiServices.Update(t.Context(), made, metav1.UpdateOptions{})
		return err
	})
	const want = "server elsewhere/api answers, and not a CustomResourceDefinition"
	says(apiServices, "v1.far.example.com", "True: ", want)
	says(crds, "widgets.far.example.com", "True: far.example.com/v1: ", want)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an event", func() error {
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "v1.far.example.com" && e.Reason == "Conflicting" && strings.Contains(e.Message, want) && e.Type == corev1.EventTypeWarning {
				return nil
			}
		}
		return fmt.Errorf("there are %v", events.Items)
	})
	health, status := get(t, config, "/readyz/apiservices", "text/plain")
	if status != 500 || !strings.Contains(health, "[-]elsewhere/api failed since ") || !strings.Contains(health, "[+]shop/fruit ok since ") {
		t.Errorf("/readyz/apiservices: %d %s", status, health)
	}
	if ready, status := get(t, config, "/readyz", "text/plain"); status != 200 {
		t.Errorf("/readyz: %d %s", status, ready)
	}

	if err := services(t, config).ApiregistrationV1().APIServices().Delete(t.Context(), "v1.far.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(crds, "widgets.far.example.com")
	eventually(t, "the CRD's resource", func() error {
		if body, status := get(t, config, "/apis/far.example.com/v1/widgets", "application/json"); status != 200 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
}
