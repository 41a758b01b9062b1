package federation

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

const wardle = "wardle.example.com"

// sample is a sample-apiserver behind a server, with an etcd.
type sample struct {
	*behind.Server
	front    *front
	identity string // its kubeconfig for the front
}

func startSample(t *testing.T, f *front) *sample {
	t.Helper()
	identity := f.account(t, "sample", "system:auth-delegator", "cluster-admin")
	server, err := programs(t).NewSample(t.TempDir(), startEtcd(t), identity)
	must(t, err)
	server.Announce = func(context.Context) error {
		_, err := f.Try(server.APIService(wardle, "v1alpha1")+server.APIService(wardle, "v1beta1"), "apply", "-f", "-")
		return err
	}
	run(t, server)
	return &sample{server, f, identity}
}

// run has a server run until the test ends, and the front know where it is.
func run(t *testing.T, s *behind.Server) {
	t.Helper()
	must(t, s.Run())
	ends(t, func() *behind.Process { return s.Process })
	must(t, s.Announce(t.Context()))
}

// startEtcd returns where it is.
func startEtcd(t *testing.T) (client string) {
	t.Helper()
	p, client, err := programs(t).StartEtcd(t.TempDir())
	must(t, err)
	ends(t, func() *behind.Process { return p })
	return client
}

// becomes waits for condition Available of both versions: the preferred one may be found after the other.
func (s *sample) becomes(t *testing.T, status string) {
	t.Helper()
	s.front.kubectl(t, "", "wait apiservice/v1alpha1."+wardle+" apiservice/v1beta1."+wardle+" --timeout=120s --for=condition=Available="+status,
		"v1alpha1.*condition met", "v1beta1.*condition met")
}

func flunder(name, version, reference string) string {
	return fmt.Sprintf("apiVersion: %s/%s\nkind: Flunder\nmetadata: {name: %s, namespace: default}\nspec: {%s}\n", wardle, version, name, reference)
}

// TestSample: kubectl cannot tell that flunders are elsewhere, whatever happens to their
// server, and nobody else notices.
func TestSample(t *testing.T) {
	f := serve(t)
	s := startSample(t, f)
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
	if out, err := f.Try("", "get", "flunders", "--as=stranger"); err == nil || !strings.Contains(out, `User "stranger" cannot list resource "flunders"`) {
		t.Errorf("a stranger gets %s", out)
	}
	s.watch(t)
	f.finds(t, "sample-apiserver", wardle, direct(t, s.identity, s.Port, s.CA))

	for _, fault := range behind.Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			end := f.others(t)
			f.kubectl(t, "", "create namespace away")
			must(t, fault.Hurt(t.Context(), s.Server))
			if fault.Away {
				s.becomes(t, "False")
				if out, err := f.Try("", "get", "flunders"); err == nil || !strings.Contains(out, "server behind/api of") {
					t.Errorf("%s: a list says %s", fault.Reason, out)
				}
			} else {
				until(t, "a list of a server that is "+fault.Name, func() error {
					_, err := f.Try("", "get", "flunders")
					return err
				})
			}
			f.kubectl(t, "", "delete namespace away --wait=false")
			f.kubectl(t, "", "get namespaces")
			must(t, fault.Mend(t.Context(), s.Server))
			s.becomes(t, "True")
			f.kubectl(t, "", "get flunder a -o name", "flunder.wardle.example.com/a")
			f.kubectl(t, "", "wait namespace/away --for=delete --timeout=120s")
			longest, n := end()
			t.Logf("%s: %d requests of others meanwhile, the longest took %v", fault.Reason, n, longest)
		})
	}
	f.kubectl(t, "", "delete flunders --all", `"a" deleted`, `"b" deleted`)
}

// watch sees an object that is made after it began.
func (s *sample) watch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", "--kubeconfig", s.front.Kubeconfig, "get", "flunders", "--watch-only", "-o", "name")
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
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
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
