package endpoints_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/builtin/endpoints"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

func serve(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	server, err := controlplane.New("discovery-test").Storage(memory.Store{}).With(endpoints.EndpointSlices{}).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
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
	case <-time.After(30 * time.Second):
		t.Fatal("the server is not ready after 30 s")
	}
	client, err := kubernetes.NewForConfig(server.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestEndpointSlices(t *testing.T) {
	t.Parallel()
	ctx, client := t.Context(), serve(t)
	slices := client.DiscoveryV1().EndpointSlices("default")
	s, err := slices.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, DeprecatedTopology: map[string]string{"a": "b"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *s.Ports[0].Name != "" || *s.Ports[0].Protocol != "TCP" || s.Endpoints[0].DeprecatedTopology != nil {
		t.Errorf("ports have defaults, and topology is dropped: %+v", s)
	}
	for i, step := range []struct {
		patch, reason string
		generation    int64
	}{
		{`{"metadata":{"annotations":{"a":"b"}}}`, "annotations do not count", 1},
		{`{"metadata":{"labels":{"kubernetes.io/service-name":"a"}}}`, "labels count", 2},
		{`{"endpoints":[]}`, "endpoints count", 3},
		{`{"metadata":{"labels":{"kubernetes.io/service-name":"b"}},"ports":[]}`, "both at once count once", 4},
	} {
		s, err := slices.Patch(ctx, "a", types.MergePatchType, []byte(step.patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Generation != step.generation {
			t.Errorf("patch %d: generation %d, want %d: %s", i, s.Generation, step.generation, step.reason)
		}
	}
	_, err = slices.Patch(ctx, "a", types.MergePatchType, []byte(`{"addressType":"IPv6"}`), metav1.PatchOptions{})
	want := `EndpointSlice.discovery.k8s.io "a" is invalid: addressType: Invalid value: "IPv6": field is immutable`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	raw, err := client.DiscoveryV1().RESTClient().Get().AbsPath("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if diff := cmp.Diff([]string{"Name", "AddressType", "Ports", "Endpoints", "Age"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"a", "IPv4", "<unset>", "<unset>"}, table.Rows[0].Cells[:4]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}
