package core_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
)

// TestServices runs against one server: each sub-test works in names of its own.
func TestServices(t *testing.T) {
	t.Parallel()
	client := serve(t, core.Services{}, core.Endpoints{})
	tests := map[string]func(*testing.T, *kubernetes.Clientset){
		"Discovery":         servicesDiscovery,
		"StoredAsGiven":     serviceStoredAsGiven,
		"Headless":          serviceHeadless,
		"ReplaceKeeps":      serviceReplace,
		"Names":             serviceNames,
		"Status":            serviceStatus,
		"FieldSelectors":    serviceFieldSelectors,
		"Tables":            serviceTables,
		"EndpointsWarnings": endpointsWarnings,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client)
		})
	}
}

func servicesDiscovery(t *testing.T, client *kubernetes.Clientset) {
	resources, err := client.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range resources.APIResources {
		if strings.HasPrefix(r.Name, "services") || strings.HasPrefix(r.Name, "endpoints") {
			got[r.Name] = strings.Join(append(append([]string{r.SingularName, r.Kind}, r.ShortNames...), append(r.Categories, r.Verbs...)...), " ")
		}
	}
	want := map[string]string{
		"services":        "service Service svc all create delete deletecollection get list patch update watch",
		"services/status": " Service get patch update",
		"endpoints":       "endpoints Endpoints ep create delete deletecollection get list patch update watch",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("discovery is as kube-apiserver's (-want +got):\n%s", diff)
	}
}

func newService(name string, spec corev1.ServiceSpec) *corev1.Service {
	if len(spec.Ports) == 0 && spec.Type != corev1.ServiceTypeExternalName {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func createService(t *testing.T, client *kubernetes.Clientset, name string, spec corev1.ServiceSpec) *corev1.Service {
	t.Helper()
	s, err := client.CoreV1().Services("default").Create(t.Context(), newService(name, spec), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func serviceStoredAsGiven(t *testing.T, client *kubernetes.Clientset) {
	for _, typ := range []corev1.ServiceType{"", "ClusterIP", "NodePort", "LoadBalancer"} {
		s := createService(t, client, "given"+strings.ToLower(string(typ)), corev1.ServiceSpec{Type: typ})
		if s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs) > 0 || s.Spec.Ports[0].NodePort != 0 || s.Generation != 0 {
			t.Errorf("type %q: nothing is allocated, and there is no generation: %+v", typ, s)
		}
		if s.Spec.Type == "" || s.Spec.Ports[0].TargetPort.IntValue() != 80 || s.Spec.Ports[0].Protocol != "TCP" {
			t.Errorf("type %q: static defaults are there: %+v", typ, s.Spec)
		}
	}
}

func serviceHeadless(t *testing.T, client *kubernetes.Clientset) {
	s := createService(t, client, "headless", corev1.ServiceSpec{ClusterIP: "None"})
	if diff := cmp.Diff([]string{"None"}, s.Spec.ClusterIPs); diff != "" {
		t.Errorf("the newer field follows the older (-want +got):\n%s", diff)
	}
}

func serviceReplace(t *testing.T, client *kubernetes.Clientset) {
	createService(t, client, "replace", corev1.ServiceSpec{ClusterIP: "10.0.0.1"})
	services := client.CoreV1().Services("default")
	s, err := services.Update(t.Context(), newService("replace", corev1.ServiceSpec{Selector: map[string]string{"a": "b"}}), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Spec.ClusterIP != "10.0.0.1" || len(s.Spec.ClusterIPs) != 1 || s.Spec.Selector["a"] != "b" {
		t.Errorf("a replacement without an address keeps it: %+v", s.Spec)
	}
	_, err = services.Patch(t.Context(), "replace", types.MergePatchType, []byte(`{"spec":{"clusterIP":"10.0.0.2"}}`), metav1.PatchOptions{})
	want := `Service "replace" is invalid: spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	s, err = services.Update(t.Context(), newService("put", corev1.ServiceSpec{}), metav1.UpdateOptions{})
	if err != nil || s.UID == "" {
		t.Errorf("a PUT to a missing name creates: %v", err)
	}
}

func serviceNames(t *testing.T, client *kubernetes.Clientset) {
	createService(t, client, "1st", corev1.ServiceSpec{})
	_, err := client.CoreV1().Services("default").Create(t.Context(), newService("a.b", corev1.ServiceSpec{}), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `Service "a.b" is invalid: metadata.name: Invalid value: "a.b": must not contain dots`) {
		t.Errorf("a name is a label: got %v", err)
	}
}

func serviceStatus(t *testing.T, client *kubernetes.Clientset) {
	ctx, services := t.Context(), client.CoreV1().Services("default")
	createService(t, client, "status", corev1.ServiceSpec{Type: "LoadBalancer"})
	patch := func(body string, subresources ...string) (*corev1.Service, error) {
		return services.Patch(ctx, "status", types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
	}
	s, err := patch(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`)
	if err != nil || len(s.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("a write to the service ignores status: %+v, %v", s, err)
	}
	s, err = patch(`{"metadata":{"finalizers":["example.org/lb"]},"spec":{"selector":{"a":"b"}},`+
		`"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`, "status")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Finalizers) != 1 || len(s.Spec.Selector) > 0 || *s.Status.LoadBalancer.Ingress[0].IPMode != "VIP" {
		t.Errorf("a write to status changes status and metadata, not spec: %+v", s)
	}
	_, err = patch(`{"status":{"loadBalancer":{"ingress":[{"ip":"x"}]}}}`, "status")
	want := `Service "status" is invalid: status.loadBalancer.ingress[0].ip: Invalid value: "x": ` +
		`must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	s, err = patch(`{"metadata":{"finalizers":null},"spec":{"type":"ClusterIP"}}`)
	if err != nil || len(s.Status.LoadBalancer.Ingress) > 0 || s.Spec.AllocateLoadBalancerNodePorts != nil || s.Spec.ExternalTrafficPolicy != "" {
		t.Errorf("what only a load balancer has goes with the type: %+v, %v", s, err)
	}
}

func serviceFieldSelectors(t *testing.T, client *kubernetes.Clientset) {
	createService(t, client, "select", corev1.ServiceSpec{ClusterIP: "10.9.9.9"})
	for _, selector := range []string{"spec.clusterIP=10.9.9.9", "spec.type=ClusterIP,metadata.name=select"} {
		all, err := client.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(all.Items) != 1 || all.Items[0].Name != "select" {
			t.Errorf("%s: %v, %v", selector, all, err)
		}
	}
}

func serviceTables(t *testing.T, client *kubernetes.Clientset) {
	createService(t, client, "table", corev1.ServiceSpec{ClusterIP: "10.0.0.3", Selector: map[string]string{"a": "b"}})
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "table"}, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "10.1.0.1"}}, Ports: []corev1.EndpointPort{{Port: 80}},
	}}}
	if _, err := client.CoreV1().Endpoints("default").Create(t.Context(), endpoints, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		columns []string
		cells   []any
	}{
		"services": {
			[]string{"Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"},
			[]any{"table", "ClusterIP", "10.0.0.3", "<none>", "80/TCP"},
		},
		"endpoints": {[]string{"Name", "Endpoints", "Age"}, []any{"table", "10.1.0.1:80"}},
	}
	for resource, tc := range cases {
		raw, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default", resource, "table").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
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
		if diff := cmp.Diff(tc.columns, columns); diff != "" {
			t.Errorf("%s: columns (-want +got):\n%s", resource, diff)
		}
		if diff := cmp.Diff(tc.cells, table.Rows[0].Cells[:len(tc.cells)]); diff != "" {
			t.Errorf("%s: cells (-want +got):\n%s", resource, diff)
		}
	}
}

// recorder keeps the warnings of a client.
type recorder struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (r *recorder) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code != 299 { // the only code that the Warning header of an API server has
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, text)
}

func endpointsWarnings(t *testing.T, client *kubernetes.Clientset) {
	warnings := &recorder{}
	request := client.CoreV1().RESTClient().Get().WarningHandlerWithContext(warnings)
	if _, err := request.AbsPath("/api/v1/namespaces/default/endpoints").Do(t.Context()).Raw(); err != nil {
		t.Fatal(err)
	}
	want := []string{"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"}
	if diff := cmp.Diff(want, warnings.text); diff != "" {
		t.Errorf("even reading them warns (-want +got):\n%s", diff)
	}
}
