package verify_test

import (
	"context"
	"os"
	"testing"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/verify"
)

// TestMain looks for goroutines that outlive their servers.
func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {size: {type: integer}}},
      status: {type: object, properties: {observedGeneration: {type: integer}, conditions: {type: array, items: {type: object}}}}}}}
`

// parts have a resource of each kind.
func parts() controlplane.Part {
	return controlplane.Parts{
		core.Namespaces{},
		core.ConfigMaps{},
		coordination.Leases{},
		aggregator.APIServices{},
		crd.Definitions{FS: fstest.MapFS{"crds.yaml": {Data: []byte(gadgets)}}},
		apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Status())),
		apis.NewGroup(schema.GroupVersion{Group: "seen.example.com", Version: "v1"}, nil, nil,
			apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Verbs("get", "list", "watch"))),
	}
}

// serve runs a server until the test ends.
func serve(t *testing.T, parts controlplane.Part) *rest.Config {
	t.Helper()
	s, err := controlplane.New("verified").Storage(memory.Store{}).With(parts).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s.ClientConfig()
}

// TestItself: nothing is wrong with the servers of this project, and nothing is left.
func TestItself(t *testing.T) {
	t.Parallel()
	config := serve(t, parts())
	told := 0
	report, err := verify.Run(t.Context(), verify.Options{Config: config, Progress: func(verify.Result) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Outcome != verify.Passed {
			t.Log(r)
		}
	}
	for _, r := range report.Failed() {
		t.Error(r)
	}
	if told != len(report.Results) || report.Count(verify.Passed) < 4*40 {
		t.Errorf("%d results, %d were told, and %d passed", len(report.Results), told, report.Count(verify.Passed))
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	left, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 2 {
		t.Errorf("namespaces that are left: %v, %v", left, err)
	}
}

// TestSamples: the samples of the kinds of Kubernetes are taken.
func TestSamples(t *testing.T) {
	t.Parallel()
	var names []string
	for _, r := range kube.Names() {
		names = append(names, r.String())
	}
	all := controlplane.Parts{preset.Standard(), core.Endpoints{}, kube.Resources(names...)}
	report, err := verify.Run(t.Context(), verify.Options{Config: serve(t, all), Only: []string{"create"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Outcome == verify.Failed || r.Outcome == verify.Skipped && r.Got != "it keeps no objects" {
			t.Error(r)
		}
	}
	if n := report.Count(verify.Passed); n < 25 {
		t.Errorf("objects of %d resources were created", n)
	}
}
