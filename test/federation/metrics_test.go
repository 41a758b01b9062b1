package federation

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
	"github.com/sailplane-dev/sailplane/test/program"
)

// kubelet tells what the containers of a node take.
func kubelet(t *testing.T) (port string) {
	t.Helper()
	begun := time.Now()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" {
			http.NotFound(w, r)
			return
		}
		now := time.Now()
		cpu, at := now.Sub(begun).Seconds()/4+1, now.UnixMilli() // a quarter of a core
		container := `{container="cook",namespace="default",pod="kitchen"}`
		fmt.Fprintf(w, "node_cpu_usage_seconds_total %f %d\nnode_memory_working_set_bytes 1.048576e+08 %[2]d\n"+
			"container_cpu_usage_seconds_total%[3]s %[1]f %[2]d\ncontainer_memory_working_set_bytes%[3]s 2.097152e+07 %[2]d\n"+
			"container_start_time_seconds%[3]s %[4]d %[2]d\n", cpu, at, container, begun.Add(-time.Hour).Unix())
	}))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestMetrics: kubectl top shows what metrics-server says, and that it is away.
func TestMetrics(t *testing.T) {
	f := serve(t, "--resources", "all")
	certFile, keyFile, ca, err := behind.Certificate(t.TempDir())
	must(t, err)
	identity, at := f.account(t, "metrics", "system:auth-delegator", "cluster-admin"), port(t)
	f.kubectl(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
		"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}],
		"daemonEndpoints": {"kubeletEndpoint": {"Port": `+kubelet(t)+`}}, "capacity": {"cpu": "4", "memory": "1Gi"},
		"allocatable": {"cpu": "4", "memory": "1Gi"}}}`, "create -f -")
	f.kubectl(t, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kitchen"}, "spec": {
		"nodeName": "n", "containers": [{"name": "cook", "image": "cook"}]}}`, "create -f -")
	f.kubectl(t, "", `patch pod kitchen --subresource=status --type=merge -p {"status":{"phase":"Running"}}`)
	f.kubectl(t, behind.APIService("metrics.k8s.io", "v1beta1", at, ca), "apply -f -")
	binary := filepath.Join(t.TempDir(), "metrics-server")
	must(t, program.Build(t.Context(), "test/federation/metrics", "sigs.k8s.io/metrics-server/cmd/metrics-server", binary))
	s := start(t, binary,
		"--secure-port", at, "--bind-address", "127.0.0.1", "--tls-cert-file", certFile, "--tls-private-key-file", keyFile,
		"--kubeconfig", identity, "--authentication-kubeconfig", identity, "--authorization-kubeconfig", identity,
		"--kubelet-insecure-tls", "--kubelet-use-node-status-port", "--metric-resolution", "10s", "--kubelet-request-timeout", "5s")
	f.kubectl(t, "", "wait apiservice/v1beta1.metrics.k8s.io --timeout=120s --for=condition=Available", "condition met")
	top := func(args, want string) {
		t.Helper()
		until(t, "kubectl "+args, func() error {
			out, err := f.Try("", strings.Fields(args)...)
			if err == nil && !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				err = fmt.Errorf("%q is missing in:\n%s", want, out)
			}
			return err
		})
	}
	top("top nodes", "100Mi 9%")
	top("top pods", "20Mi")
	top("explain nodemetrics", "NodeMetrics")
	f.kubectl(t, "", "get --raw /apis/metrics.k8s.io/v1beta1/nodes/n", `"kind":"NodeMetrics"`)

	f.finds(t, "metrics-server", "metrics.k8s.io", direct(t, identity, at, ca))

	end := f.others(t)
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f.kubectl(t, "", "wait apiservice/v1beta1.metrics.k8s.io --timeout=120s --for=condition=Available=false", "condition met")
	if out, err := f.Try("", "top", "nodes"); err == nil {
		t.Errorf("kubectl top says %s", out)
	}
	f.kubectl(t, "", "create namespace gone")
	f.kubectl(t, "", "delete namespace gone --timeout=10s") // nobody can delete what metrics-server has
	if err := s.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	top("top nodes", "100Mi 9%")
	longest, n := end()
	t.Logf("%d requests of others meanwhile, the longest took %v", n, longest)
}
