package chart

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// shell runs commands that somebody reads, in a folder with the repository's config.
type shell struct {
	dir   string
	env   []string
	paths *strings.Replacer
}

// functions have kubectl run in the pod what is for the pod, and note where a port leads.
const functions = `set -e
kubectl() {
  case " $* " in
  *" exec "*)
    echo "$@" >>executed
    while [ "$1" != -- ]; do shift; done
    shift 2
    "$SAILPLANE_BINARY" "$@";;
  *" port-forward "*) echo "$@" >>forwarded;;
  *) command kubectl "$@";;
  esac
}
helm() { command "$HELM" "$@"; }
`

func newShell(t *testing.T, s *server) *shell {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(repository(t), "config"), filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	return &shell{dir: dir, paths: strings.NewReplacer(), env: []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + s.kubeconfig, "SAILPLANE_BINARY=" + sailplane, "HELM=" + helmProgram,
	}}
}

// inside has commands for the pod find it: its data is in a folder here, and it listens at another port.
func (s *shell) inside(p *pod, server *server) {
	s.paths = strings.NewReplacer("/var/lib/sailplane", p.folders["/var/lib/sailplane"], "https://127.0.0.1:6443", server.url)
}

// run runs a script and returns what it prints.
func (s *shell) run(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", functions+s.paths.Replace(script))
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// installed starts the server of a release, with what the cluster has of it.
func installed(t *testing.T, client kubernetes.Interface, namespace, name string) (*pod, *server) {
	t.Helper()
	set, err := client.AppsV1().StatefulSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := run(t, set, config, nil)
	return p, start(t, p.command("--listen=127.0.0.1:0"))
}

// leads checks that commands for the pod name it, and the port of its Service.
func (s *shell) leads(t *testing.T, namespace string, set *appsv1.StatefulSet, service *corev1.Service) {
	t.Helper()
	for file, want := range map[string]string{
		"executed":  "--namespace " + namespace + " exec " + set.Name + "-0 -- /sailplane ",
		"forwarded": "--namespace " + namespace + " port-forward service/" + service.Name + " 6443:443\n",
	} {
		if got := read(t, s.dir, file); !strings.HasPrefix(got, want) || service.Spec.Ports[0].Port != 443 {
			t.Errorf("kubectl was called with\n%s, want\n%s", got, want)
		}
	}
	if !strings.Contains(read(t, repository(t), "config", "container", "Containerfile"), `ENTRYPOINT ["/sailplane"]`) {
		t.Error("the image has the binary elsewhere")
	}
}

// TestNotes does what helm says after an installation.
func TestNotes(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	client, err := kubernetes.NewForConfig(s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	out, err := helm(t, s.kubeconfig, "install", release, folder(t), "--namespace", namespace, "--create-namespace")
	if err != nil {
		t.Fatal(err)
	}
	_, notes, found := strings.Cut(out, "\nNOTES:\n")
	script := strings.Join(regexp.MustCompile(`(?m)^  .*$`).FindAllString(notes, -1), "\n")
	if !found || strings.Count(script, "kubectl") != 3 {
		t.Fatalf("there are no notes with three commands:\n%s", out)
	}
	p, inner := installed(t, client, namespace, release+"-sailplane")
	sh := newShell(t, s)
	sh.inside(p, inner)
	if out := sh.run(t, script); !strings.Contains(out, "kube-system   Active") {
		t.Errorf("the commands print\n%s", out)
	}
	objects := render(t)
	var set appsv1.StatefulSet
	var service corev1.Service
	objects.into(t, "StatefulSet", &set)
	objects.into(t, "Service", &service)
	sh.leads(t, namespace, &set, &service)
	// The name for programs in the cluster is in the certificate.
	m := regexp.MustCompile(`reach it at https://(\S+):443\n`).FindStringSubmatch(notes)
	if m == nil {
		t.Fatalf("the notes do not say where the server is:\n%s", notes)
	}
	if err := presented(t, inner, m[1]).VerifyHostname(m[1]); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"self-signed": "when the pod goes, every object goes", "everything": "which replicas: 0 has stopped", "secret": "certificate in Secret sailplane-serving",
	} {
		out, err := helm(t, s.kubeconfig, "install", release, folder(t), "--namespace", namespace, "--dry-run=client", "--values", samples(t)[name])
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: the notes do not say %q: %v\n%s", name, want, err, out)
		}
	}
}

// TestPage runs the commands about the chart in docs/deploying.md, up to the metrics that Prometheus reads and to a backup.
func TestPage(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	client, err := kubernetes.NewForConfig(s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	controller(t, client)
	_, section, _ := strings.Cut(read(t, repository(t), "docs", "deploying.md"), "\n## Kubernetes: the chart\n")
	section, _, _ = strings.Cut(section, "\n### ") // the other chart has a test of its own
	scripts := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(section, -1)
	if len(scripts) != 4 {
		t.Fatalf("the section has %d scripts, want one each for the installation, a kubeconfig, Prometheus and backups", len(scripts))
	}
	const name = "sailplane"
	sh := newShell(t, s)
	sh.run(t, scripts[0][1])
	p, inner := installed(t, client, name, name)
	sh.inside(p, inner)
	if out := sh.run(t, scripts[1][1]); !strings.Contains(out, "kube-system   Active") {
		t.Errorf("the kubeconfig's commands print\n%s", out)
	}
	set, err := client.AppsV1().StatefulSets(name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := client.CoreV1().Services(name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sh.leads(t, name, set, service)
	sh.run(t, scripts[2][1])
	monitors, err := dynamic.NewForConfig(s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	monitor, err := monitors.Resource(apischema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"}).
		Namespace(name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "Prometheus reads the metrics", func() bool { return scrape(t, client, monitor, service, inner) })
	sh.run(t, scripts[3][1])
	job, err := client.BatchV1().CronJobs(name).Get(t.Context(), name+"-backup", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := client.CoreV1().Secrets(name).Get(t.Context(), "sailplane-backup", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The Service leads to the server, which is elsewhere here.
	kubeconfig, host := string(secret.Data["kubeconfig"]), "server: https://"+service.Name+"."+name+".svc\n"
	if !strings.Contains(kubeconfig, host) {
		t.Fatalf("the kubeconfig is not for the Service: there is no %s", host)
	}
	kubeconfig = strings.Replace(kubeconfig, host, "server: "+inner.url+"\n", 1)
	pod := prepare(t, &job.Spec.JobTemplate.Spec.Template.Spec, nil, map[string]map[string]string{secret.Name: {"kubeconfig": kubeconfig}})
	takes(t, pod, 1)
}

// scrape reads metrics as the Prometheus of a ServiceMonitor does. A binding takes a moment.
func scrape(t *testing.T, client kubernetes.Interface, monitor *unstructured.Unstructured, service *corev1.Service, s *server) bool {
	t.Helper()
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("%d endpoints, %v", len(endpoints), err)
	}
	endpoint := endpoints[0].(map[string]any)
	field := func(path ...string) string {
		text, _, err := unstructured.NestedString(endpoint, path...)
		if err != nil || text == "" {
			t.Fatalf("endpoints.%s is empty: %v", strings.Join(path, "."), err)
		}
		return text
	}
	secret := func(path ...string) string {
		of, err := client.CoreV1().Secrets(monitor.GetNamespace()).Get(t.Context(), field(append(path, "name")...), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(of.Data[field(append(path, "key")...)])
	}
	if port := service.Spec.Ports[0].Name; field("port") != port {
		t.Errorf("the ServiceMonitor asks port %s, the Service has %s", field("port"), port)
	}
	labels, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	if err != nil || len(labels) == 0 {
		t.Fatalf("the ServiceMonitor selects %v, %v", labels, err)
	}
	for label, value := range labels {
		if service.Labels[label] != value {
			t.Errorf("the Service has no label %s=%s", label, value)
		}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(secret("tlsConfig", "ca", "secret"))) {
		t.Fatal("the Secret has no authority")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: field("tlsConfig", "serverName")}}
	defer transport.CloseIdleConnections()
	address := net.JoinHostPort("127.0.0.1", s.url[strings.LastIndex(s.url, ":")+1:])
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, field("scheme")+"://"+address+field("path"), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", field("authorization", "type")+" "+strings.TrimSpace(secret("authorization", "credentials")))
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusForbidden {
		return false
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "\nsailplane_storage_file_bytes") {
		t.Fatalf("%s\n%s", resp.Status, body)
	}
	return true
}
