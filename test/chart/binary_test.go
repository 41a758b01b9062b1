package chart

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"
)

// secretsOf are the Secrets that the samples name, with a certificate for a host.
func secretsOf(t *testing.T, host string) map[string]map[string]string {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair := map[string]string{"tls.crt": string(cert), "tls.key": string(key)}
	return map[string]map[string]string{
		"sailplane-serving": pair, "plane-sailplane-tls": pair, "control-plane-tls": pair,
		"sailplane-share": {"share.key": strings.Repeat("0123456789abcdef", 4) + "\n"},
		"sailplane-more":  {"tls.crt": string(cert), "tls.key": string(key), "tokens.csv": "secret,ann,1,growers\n"},
	}
}

// TestConfigurations: the binary finds nothing wrong with the files and the flags of any pod.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	for name, values := range samples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, "--values", values)
			cmd := podOf(t, objects, secretsOf(t, "more.example.com")).command("--check")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "the configuration is right") {
				t.Errorf("%v: %s\n%s", err, out, configOf(t, objects).Data["server.yaml"])
			}
		})
	}
}

// TestProbes starts servers as the pod does, and asks what the kubelet asks.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"defaults", "secret", "self-signed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, "--values", samples(t)[name])
			p := podOf(t, objects, secretsOf(t, "plane-sailplane.prod.svc"))
			s := start(t, p.command("--listen=127.0.0.1:0"))
			port := listensAt(t, objects)
			for what, probe := range map[string]*corev1.Probe{
				"startup": p.container.StartupProbe, "liveness": p.container.LivenessProbe, "readiness": p.container.ReadinessProbe,
			} {
				get := probe.HTTPGet
				if exposed := portOf(t, p.container, get.Port.StrVal); exposed != port {
					t.Errorf("the %s probe asks port %d, the server listens at %d", what, exposed, port)
				}
				url := strings.ToLower(string(get.Scheme)) + "://" + strings.TrimPrefix(s.url, "https://") + get.Path
				resp, err := insecure(t).Get(url)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("the %s probe: GET %s: %s\n%s", what, url, resp.Status, body)
				}
			}
			s.stop(t)
		})
	}
}

// TestLivenessWithoutStorage: a server whose storage is elsewhere lives while that is away.
func TestLivenessWithoutStorage(t *testing.T) {
	t.Parallel()
	s := start(t, podOf(t, render(t), nil).command("--listen=127.0.0.1:0"))
	for url, want := range map[string]string{
		"":                                   "[+]storage-etcd ok\n",
		"memory":                             "[+]storage-etcd ok\n",
		"etcd:/var/lib/sailplane/etcd":       "[+]storage-etcd ok\n",
		"etcd+https://etcd.example.com:2379": "[+]storage-etcd excluded: ok\n",
		"postgres://sailplane@db/sailplane":  "[+]storage-etcd excluded: ok\n",
	} {
		var set appsv1.StatefulSet
		render(t, "--set=config.storage.url="+url).into(t, "StatefulSet", &set)
		path := set.Spec.Template.Spec.Containers[0].LivenessProbe.HTTPGet.Path
		ask := "?verbose"
		if strings.Contains(path, "?") {
			ask = "&verbose"
		}
		resp, err := insecure(t).Get(s.url + path + ask)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(body), want) {
			t.Errorf("storage %q: %s says %s\n%s", url, path, resp.Status, body)
		}
	}
}

// TestServingCertificate: who asks for the Service's name gets the certificate of the Secret,
// and who asks for the address gets that of the server's own authority.
func TestServingCertificate(t *testing.T) {
	t.Parallel()
	const host = "plane-sailplane.prod.svc"
	own := start(t, podOf(t, render(t), nil).command("--listen=127.0.0.1:0"))
	if issuer := presented(t, own, host).Issuer.CommonName; issuer != "sailplane-ca" {
		t.Errorf("without a Secret, %s has a certificate of %s", host, issuer)
	}
	if err := presented(t, own, host).VerifyHostname(host); err != nil {
		t.Error(err)
	}
	secrets := secretsOf(t, host)
	given := start(t, podOf(t, render(t, "--values", samples(t)["secret"]), secrets).command("--listen=127.0.0.1:0"))
	want, err := certutil.ParseCertsPEM([]byte(secrets["sailplane-serving"]["tls.crt"]))
	if err != nil {
		t.Fatal(err)
	}
	if got := presented(t, given, host); !got.Equal(want[0]) {
		t.Errorf("%s has a certificate of %s", host, got.Issuer.CommonName)
	}
	if issuer := presented(t, given, "").Issuer.CommonName; issuer != "sailplane-ca" {
		t.Errorf("the address has a certificate of %s", issuer)
	}
}

var (
	inForce  = regexp.MustCompile(`(?m)^sailplane: in force now: (.+)$`)
	restarts = regexp.MustCompile(`(?m)^sailplane: in force after a restart: (.+)$`)
	refused  = regexp.MustCompile(`(?m)^.*Could not load the changed configuration.*$`)
)

// TestFollowed: the pod is restarted for exactly those changes of its configuration that the
// server does not put into effect by itself. The server says which these are.
func TestFollowed(t *testing.T) {
	t.Parallel()
	p := podOf(t, render(t), nil)
	s := start(t, p.command("--listen=127.0.0.1:0"))
	changed := map[string]string{
		"authentication.jwt": `[{"issuer":{"url":"https://issuer.example.com","audiences":["a"]},` +
			`"claimMappings":{"username":{"claim":"sub","prefix":""}}}]`,
		"authentication.proxy.usernameHeaders":              `["X-User"]`,
		"authentication.serviceAccounts.audiences":          `["sailplane"]`,
		"authentication.serviceAccounts.issuer":             `"https://sailplane.example.com"`,
		"authentication.serviceAccounts.maxTokenExpiration": `"1h"`,
		"authentication.webhook.cacheTTL":                   `"1m"`,
		"authorization.authorizers":                         `[{"type":"RBAC","name":"roles"}]`,
		"authorization.filteredLists":                       `["configmaps"]`,
		"admission.disable":                                 `["LimitRanger"]`,
		"audit.maxBackups":                                  `3`,
		"backup.directory":                                  `"/var/lib/sailplane/backups"`,
		"backup.every":                                      `"12h"`,
		"backup.keep":                                       `14`,
		"garbageCollection":                                 `false`,
		"limits.burst":                                      `200`,
		"limits.maxRequestsInFlight":                        `100`,
		"limits.mode":                                       `"warn"`,
		"limits.namespaceFactor":                            `8`,
		"limits.objectSize":                                 `"1Mi"`,
		"limits.objectsPerResource":                         `1000`,
		"limits.priorityAndFairness":                        `false`,
		"limits.requestsAtOnce":                             `100`,
		"limits.requestsPerSecond":                          `100`,
		"limits.storedSize":                                 `"2Gi"`,
		"limits.storedSizePerUser":                          `"4Gi"`,
		"limits.watches":                                    `100`,
		"limits.writeBurst":                                 `"32Mi"`,
		"limits.writeRate":                                  `"4Mi"`,
		"log.verbosity":                                     `1`,
		"profiling":                                         `true`,
		"resources":                                         `["standard"]`,
		"services.clusterIPs":                               `"198.19.0.0/16"`,
		"storage.quota":                                     `"4Gi"`,
		"storageAPI.enabled":                                `true`,
		"storageAPI.address":                                `"api.example.com"`,
		"storageAPI.limits.keys":                            `1000`,
		"storageAPI.limits.bytes":                           `"64Mi"`,
		"storageAPI.limits.valueBytes":                      `"1Mi"`,
		"storageAPI.limits.watches":                         `100`,
		"storageAPI.limits.writesPerSecond":                 `50`,
		"storageAPI.storages":                               `[{"name":"archive","url":"postgres://a@db.example.com/archive"}]`,
		"tracing.endpoint":                                  `"collector.monitoring:4317"`,
	}
	// What the chart fills in.
	flags := map[string]string{"serving.drain": "--set=drainSeconds=10", "advertise": "--set=advertise={api.example.com}"}
	for field, value := range changed {
		flags[field] = "--set-json=config." + field + "=" + value
	}
	// A new file takes the place of the old one, as in a volume.
	file := filepath.Join(p.folders["/etc/sailplane"], "server.yaml")
	write(t, file+".new", p.inside.Replace(configOf(t, render(t, slices.Collect(maps.Values(flags))...)).Data["server.yaml"]))
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	var now, later []string
	eventually(t, "the server read its configuration again", func() bool {
		says := s.out.String()
		if found := refused.FindString(says); found != "" {
			t.Fatal(found)
		}
		a, b := inForce.FindStringSubmatch(says), restarts.FindStringSubmatch(says)
		if a != nil && b != nil {
			now, later = strings.Split(a[1], ", "), strings.Split(b[1], ", ")
		}
		return a != nil && b != nil
	})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(flags)), slices.Sorted(slices.Values(slices.Concat(now, later)))); diff != "" {
		t.Fatalf("fields that changed (-want +got):\n%s", diff)
	}
	before := checksum(t)
	for field, flag := range flags {
		if restarts := checksum(t, flag) != before; restarts != slices.Contains(later, field) {
			t.Errorf("%s: the chart restarts the pod: %t, and the server needs it: %t", field, restarts, !restarts)
		}
	}
	if together := checksum(t, "--set-json=config.limits={\"burst\":7,\"maxRequestsInFlight\":100}"); together == before {
		t.Error("a change of two fields, one of which is followed, does not restart the pod")
	}
}

// checksum is the annotation that changes with what needs a restart.
func checksum(t *testing.T, flags ...string) string {
	t.Helper()
	var set appsv1.StatefulSet
	render(t, flags...).into(t, "StatefulSet", &set)
	sum := set.Spec.Template.Annotations["sailplane.dev/config-that-needs-a-restart"]
	if len(sum) != 64 {
		t.Fatalf("the checksum is %q", sum)
	}
	return sum
}

// listensAt is the port in the configuration file.
func listensAt(t *testing.T, objects rendered) int {
	t.Helper()
	var config struct{ Listen string }
	if err := yaml.Unmarshal([]byte(configOf(t, objects).Data["server.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(config.Listen)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// portOf is the port of a container with a name.
func portOf(t *testing.T, container corev1.Container, name string) int {
	t.Helper()
	for _, port := range container.Ports {
		if port.Name == name {
			return int(port.ContainerPort)
		}
	}
	t.Fatalf("the container has no port %q", name)
	return 0
}

// insecure is a client that verifies nothing, like a kubelet.
func insecure(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// presented is the certificate that the server shows to who asks for a name.
func presented(t *testing.T, s *server, name string) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// defaults are the fields of the configuration file, with their defaults.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	out, err := exec.Command(sailplane, "config").Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(out, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}
