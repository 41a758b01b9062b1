package admit_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// libraries is what the libraries logged without a context.
var libraries journal

// journal is written by servers and read by a test.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

// about are the lines with a text.
func (j *journal) about(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []string
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestMain(m *testing.M) {
	klog.SetSlogLogger(controlplane.LibraryLog(slog.New(slog.NewJSONHandler(&libraries, nil))))
	os.Exit(leaktest.Run(m))
}

const widgetCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              color: {type: string}
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              color: {type: string}
`

func widgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
}

func configMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

func widgetDefinition() crd.Definitions {
	return crd.Definitions{FS: fstest.MapFS{"widgets.yaml": {Data: []byte(widgetCRD)}}}
}

// everything is a plane whose admission is all that there is.
func everything() controlplane.Parts {
	return controlplane.Parts{
		core.Namespaces{},
		core.ConfigMaps{},
		widgetDefinition(),
		admissionregistration.All(),
		admit.MutatingPolicies{},
		admit.MutatingWebhooks{},
		admit.ValidatingPolicies{},
		admit.ValidatingWebhooks{},
	}
}

// start runs a server until the test ends.
func start(t *testing.T, parts ...controlplane.Part) *rest.Config {
	t.Helper()
	return startOn(t, memory.Store{}, parts...)
}

func startOn(t *testing.T, storage controlplane.Storage, parts ...controlplane.Part) *rest.Config {
	t.Helper()
	server, err := controlplane.New("admit-test").Storage(storage).With(parts...).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	begun := time.Now()
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready after a minute")
	}
	t.Logf("ready after %v", time.Since(begun).Round(time.Millisecond))
	config := server.ClientConfig()
	config.QPS = -1
	return config
}

func dynamicClient(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// object is a ConfigMap or a Widget with some fields.
func object(resource schema.GroupVersionResource, name string, fields map[string]any) *unstructured.Unstructured {
	kind := map[string]string{"configmaps": "ConfigMap", "widgets": "Widget", "apples": "Apple"}[resource.Resource]
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
	u.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	for key, value := range fields {
		u.Object[key] = value
	}
	return u
}

// eventually waits for what a change has for an effect.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("%s: not after a minute", what)
	}
}

// try creates an object as a dry run, so that it can be tried again.
func try(t *testing.T, client dynamic.Interface, r schema.GroupVersionResource, fields map[string]any) (*unstructured.Unstructured, error) {
	t.Helper()
	return tryObject(t, client, r, object(r, "tried", fields))
}

func tryObject(t *testing.T, client dynamic.Interface, r schema.GroupVersionResource, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	return client.Resource(r).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func parse(t *testing.T, text string, into *unstructured.Unstructured) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &into.Object); err != nil {
		t.Fatal(err)
	}
}
