package crd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// patience is how long anything may take before it counts as never.
const patience = 2 * time.Minute

// plane is a server that runs until its test ends, and clients of it.
type plane struct {
	*dynamic.DynamicClient
	config *rest.Config
}

// start runs a server with CRDs, namespaces and an aggregator.
func start(t *testing.T, more ...controlplane.Part) plane {
	t.Helper()
	return startWith(t, crd.Definitions{}, more...)
}

// startWith is start with a part of the test's.
func startWith(t *testing.T, definitions crd.Definitions, more ...controlplane.Part) plane {
	t.Helper()
	parts := append([]controlplane.Part{definitions, core.Namespaces{}, aggregator.APIServices{}}, more...)
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run: %v", err)
	}
	c, err := dynamic.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return plane{DynamicClient: c, config: s.ClientConfig()}
}

// rest is a client for what the dynamic one cannot ask.
func (p plane) rest(t *testing.T) rest.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	return c.RESTClient()
}

// of are the objects of a resource of example.com in the namespace default.
func (p plane) of(plural, version string) dynamic.ResourceInterface {
	return p.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: plural}).Namespace("default")
}

// object reads an object from YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	normal, err := u.MarshalJSON() // numbers as the decoder makes them
	if err == nil {
		err = u.UnmarshalJSON(normal)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// definition makes a CRD of example.com from the YAML of its versions and of
// what else its spec has.
func definition(t *testing.T, plural, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	spec = "  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ")
	return object(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: `+plural+`.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: `+plural+`, singular: `+strings.ToLower(kind)+`, kind: `+kind+`}
`+spec)
}

// define creates a CRD and waits until it is established.
func (p plane) define(t *testing.T, def *unstructured.Unstructured) {
	t.Helper()
	w, err := p.Resource(crds).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + def.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	created, err := p.Resource(crds).Create(t.Context(), def, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, list := at(created, "status.conditions").([]any); !list {
		t.Errorf("%s has conditions that kubectl wait does not wait for: %v", def.GetName(), at(created, "status"))
	}
	timeout := time.After(patience)
	for {
		select {
		case e := <-w.ResultChan():
			if u, ok := e.Object.(*unstructured.Unstructured); ok && established(u) {
				return
			}
		case <-timeout:
			t.Fatalf("%s was not established in %v", def.GetName(), patience)
		}
	}
}

// create creates an object given as YAML and returns what is stored.
func create(t *testing.T, c dynamic.ResourceInterface, text string) *unstructured.Unstructured {
	t.Helper()
	u, err := c.Create(t.Context(), object(t, text), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// get reads an object.
func get(t *testing.T, c dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := c.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// at is the value of a field, or nil.
func at(u *unstructured.Unstructured, path string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
	return v
}

// set changes a field.
func set(t *testing.T, u *unstructured.Unstructured, path string, value any) *unstructured.Unstructured {
	t.Helper()
	u = u.DeepCopy()
	if err := unstructured.SetNestedField(u.Object, value, strings.Split(path, ".")...); err != nil {
		t.Fatal(err)
	}
	return u
}

// causes are the causes of a 422 by field.
func causes(t *testing.T, err error) map[string]string {
	t.Helper()
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		t.Fatalf("%v, want a 422 with causes", err)
	}
	found := map[string]string{}
	for _, c := range status.Status().Details.Causes {
		found[c.Field] += c.Message
	}
	return found
}

// eventually waits for something that no watch tells.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// wantField says how a field differs from what it should be.
func wantField(u *unstructured.Unstructured, path string, want any) error {
	if got := at(u, path); got != want {
		return fmt.Errorf("%s of %s is %v, want %v", path, u.GetName(), got, want)
	}
	return nil
}
