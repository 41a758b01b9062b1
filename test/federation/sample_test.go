package federation

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const wardle = "wardle.example.com"

// sample is a sample-apiserver behind a server, with an etcd.
type sample struct {
	*process
	t                      *testing.T // its processes end with this test
	front                  *front
	binary, etcd, identity string
	port                   string
	certFile, keyFile      string
	ca                     []byte
}

func startSample(t *testing.T, f *front) *sample {
	t.Helper()
	s := &sample{
		t: t, front: f, binary: build(t, "sample", "k8s.io/sample-apiserver"),
		identity: f.account(t, "sample", "system:auth-delegator", "cluster-admin"),
	}
	s.certFile, s.keyFile, s.ca = certificate(s.t)
	s.etcd = startEtcd(t)
	s.port = port(t)
	s.run()
	return s
}

// startEtcd returns where it is.
func startEtcd(t *testing.T) (client string) {
	t.Helper()
	client, peer := "http://127.0.0.1:"+port(t), "http://127.0.0.1:"+port(t)
	start(t, build(t, "../storage/etcd37", "go.etcd.io/etcd/server/v3"), "--data-dir", t.TempDir(), "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer, "--log-level", "error")
	return client
}

// run starts the program at its port.
func (s *sample) run() {
	s.t.Helper()
	s.process = start(s.t, s.binary, "--etcd-servers", s.etcd, "--bind-address", "127.0.0.1", "--secure-port", s.port,
		"--tls-cert-file", s.certFile, "--tls-private-key-file", s.keyFile,
		"--kubeconfig", s.identity, "--authentication-kubeconfig", s.identity, "--authorization-kubeconfig", s.identity)
}

// announce writes its APIServices.
func (s *sample) announce(t *testing.T) {
	t.Helper()
	s.front.kubectl(t, apiService(wardle, "v1alpha1", s.port, s.ca)+apiService(wardle, "v1beta1", s.port, s.ca), "apply -f -")
}

// becomes waits for condition Available.
func (s *sample) becomes(t *testing.T, status string) {
	t.Helper()
	s.front.kubectl(t, "", "wait apiservice/v1alpha1."+wardle+" --timeout=120s --for=condition=Available="+status, "condition met")
}

func flunder(name, version, reference string) string {
	return fmt.Sprintf("apiVersion: %s/%s\nkind: Flunder\nmetadata: {name: %s, namespace: default}\nspec: {%s}\n", wardle, version, name, reference)
}

// TestSample: kubectl cannot tell that flunders are elsewhere, whatever happens to their
// server, and nobody else notices.
func TestSample(t *testing.T) {
	f := serve(t)
	s := startSample(t, f)
	s.announce(t)
	s.becomes(t, "True")

	f.kubectl(t, "", "api-resources --api-group="+wardle, `flunders +`+wardle+`/v1\w+ +true +Flunder`, `fischers`)
	f.kubectl(t, "", "explain flunder.spec", `VERSION: +v1beta1`, `flunderReference`)
	f.kubectl(t, "", "get --raw /openapi/v2", wardle+`/v1alpha1/namespaces/\{namespace\}/flunders`)
	f.kubectl(t, flunder("a", "v1alpha1", "reference: b"), "apply --server-side -f -", "flunder.wardle.example.com/a serverside-applied")
	f.kubectl(t, flunder("a", "v1alpha1", "reference: c"), "apply --server-side -f -", "serverside-applied")
	f.kubectl(t, flunder("a", "v1alpha1", "reference: c"), "diff --server-side -f -")
	f.kubectl(t, flunder("b", "v1beta1", "flunderReference: a, referenceType: Flunder"), "create -f -", "created")
	f.kubectl(t, "", "get flunder a -o jsonpath={.spec.flunderReference}", "^c$")
	f.kubectl(t, "", "get flunders", `NAME +CREATED AT`, `(?m)^a +`, `(?m)^b +`)
	f.kubectl(t, "", "label flunder a color=red", "labeled")
	f.kubectl(t, "", "get flunders -l color=red -o name", "^flunder.wardle.example.com/a\n$")
	f.kubectl(t, "", `patch flunder a --type=merge -p {"metadata":{"annotations":{"note":"x"}}}`, "patched")
	f.kubectl(t, "", "annotate flunder a note-", "annotated")
	f.kubectl(t, "", "describe flunder a", `Kind: +Flunder`)
	if out, err := f.try("", "get", "flunders", "--as=stranger"); err == nil || !strings.Contains(out, `User "stranger" cannot list resource "flunders"`) {
		t.Errorf("a stranger gets %s", out)
	}
	s.watch(t)

	faults := map[string]struct {
		reason     string
		hurt, mend func(t *testing.T)
	}{
		"killed": {"nobody listens", func(*testing.T) { s.kill() }, func(*testing.T) { s.run() }},
		"frozen": {
			"connections are taken, and nothing comes", func(t *testing.T) { signal(t, s, syscall.SIGSTOP) },
			func(t *testing.T) { signal(t, s, syscall.SIGCONT) },
		},
		"elsewhere": {"its address is another one, and the APIService says so", func(t *testing.T) {
			s.kill()
			s.port = port(t)
			s.run()
		}, s.announce},
		"wrong certificate": {"it may be somebody else", func(t *testing.T) {
			s.kill()
			s.certFile, s.keyFile, _ = certificate(s.t)
			s.run()
		}, func(t *testing.T) {
			s.kill()
			s.certFile, s.keyFile, s.ca = certificate(s.t)
			s.run()
			s.announce(t)
		}},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			end := f.others(t)
			f.kubectl(t, "", "create namespace away")
			fault.hurt(t)
			s.becomes(t, "False")
			if out, err := f.try("", "get", "flunders"); err == nil || !strings.Contains(out, "server behind/api of") {
				t.Errorf("%s: a list says %s", fault.reason, out)
			}
			f.kubectl(t, "", "delete namespace away --wait=false")
			f.kubectl(t, "", "get namespaces")
			fault.mend(t)
			s.becomes(t, "True")
			f.kubectl(t, "", "get flunder a -o name", "flunder.wardle.example.com/a")
			f.kubectl(t, "", "wait namespace/away --for=delete --timeout=120s")
			longest, n := end()
			t.Logf("%s: %d requests of others meanwhile, the longest took %v", fault.reason, n, longest)
		})
	}
	f.kubectl(t, "", "delete flunders --all", `"a" deleted`, `"b" deleted`)
}

func signal(t *testing.T, s *sample, sig syscall.Signal) {
	t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// watch sees an object that is made after it began.
func (s *sample) watch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", "--kubeconfig", s.front.kubeconfig, "get", "flunders", "--watch-only", "-o", "name")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "flunder.wardle.example.com/seen" {
				return
			}
		}
		t.Error("the watch ended without the object")
	}()
	for n := 0; ; n++ { // the watch may not have begun
		s.front.kubectl(t, flunder("seen", "v1beta1", "flunderReference: a, referenceType: Flunder"), "create -f -")
		s.front.kubectl(t, "", "delete flunder seen")
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// others reads and writes ConfigMaps until the returned function is called: no request fails.
func (f *front) others(t *testing.T) (end func() (longest time.Duration, n int)) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	configMaps := client.CoreV1().ConfigMaps("default")
	stop, longest, n := make(chan struct{}), time.Duration(0), 0
	var working sync.WaitGroup
	working.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			begun := time.Now()
			made, err := configMaps.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{})
			if err == nil {
				err = configMaps.Delete(context.Background(), made.Name, metav1.DeleteOptions{})
			}
			if err == nil {
				_, err = client.Discovery().ServerResourcesForGroupVersion("v1")
			}
			if err != nil {
				t.Errorf("a request to another group: %v", err)
				return
			}
			longest, n = max(longest, time.Since(begun)), n+3
		}
	})
	end = sync.OnceValues(func() (time.Duration, int) {
		close(stop)
		working.Wait()
		return longest, n
	})
	t.Cleanup(func() { end() })
	return end
}
