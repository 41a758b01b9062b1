// Package security tries to get into a server that is made as "sailplane serve"
// makes it. Every attempt is a row in docs/security.md.
package security

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// limit is how long anything may take before it counts as hanging. It is far
// from what anything takes.
const limit = 2 * time.Minute

// treasure is what no attempt may ever see, and no answer to one may have in it.
const treasure = "the-crown-jewels"

// users are those of the token file, with their groups. What they may do is in
// testdata/world.yaml. A token is "token-of-" and the name.
func users() map[string]string {
	return map[string]string{
		"stranger":     "", // logs in and has no rights
		"reader":       "", // gets the ConfigMap "open" in namespace tenant
		"watcher":      "", // lists and watches ConfigMaps in namespace tenant
		"editor":       "", // has ClusterRole edit in namespace tenant
		"chief":        "", // has ClusterRole admin in namespace tenant
		"climber":      "", // writes all that RBAC has, and CertificateSigningRequests, but no more
		"impersonator": "", // may impersonate user "reader"
		"userized":     "", // may impersonate every user
		"definer":      "", // writes CRDs, policies and webhook configurations
		"outside":      "", // reads gourds/status in namespace tenant
		"named":        "", // gets gourds named "status" and "scale" in namespace tenant
		"saver":        "", // gets /backup
		"mender":       "", // posts to /debug/storage
	}
}

func tokenOf(name string) string { return "token-of-" + name }

var logs = &logBuffer{}

func TestMain(m *testing.M) {
	klog.SetSlogLogger(controlplane.LibraryLog(slog.New(slog.NewTextHandler(logs, nil)))) // as the binary does
	log.SetOutput(logs)
	os.Exit(m.Run())
}

// logBuffer keeps what a server and the libraries below it log of panics.
type logBuffer struct {
	mu     sync.Mutex
	panics []string
	long   string // the longest line
}

// longest returns how many panics there were and the longest line, and forgets them.
func (b *logBuffer) longest() (panics int, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	panics, line = len(b.panics), b.long
	b.panics, b.long = nil, ""
	return panics, line
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes.Contains(p, []byte("Observed a panic")) || bytes.Contains(p, []byte("panic serving")) || bytes.Contains(p, []byte("panic'd")) {
		b.panics = append(b.panics, string(p))
	}
	if len(p) > len(b.long) {
		b.long = string(p)
	}
	return len(p), nil
}

func (b *logBuffer) noPanic(tb testing.TB) {
	tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.panics {
		tb.Errorf("the server panicked: %s", p)
	}
	b.panics = nil
}

// world is a running server with something to steal.
type world struct {
	server *controlplane.Server
	// base is the URL of the server, and address its host and port.
	base, address string
	roots         *x509.CertPool
	// admin may do everything, with a client certificate.
	admin *rest.Config
	// clients are for HTTP/2 and without a client certificate, and with that of the administrator.
	plain, certified *http.Client
	// dir is where the server keeps its files, and audit the record.
	dir, audit string
}

// serve starts a server with the parts of "sailplane serve" and more, and makes
// the objects of testdata/world.yaml.
func serve(tb testing.TB, more ...controlplane.Part) *world {
	tb.Helper()
	return serveWith(tb, memory.Store{}, controlplane.Limits{}, more...)
}

// serveOn is serve with a storage.
func serveOn(tb testing.TB, storage controlplane.Storage, more ...controlplane.Part) *world {
	tb.Helper()
	return serveWith(tb, storage, controlplane.Limits{}, more...)
}

// serveLimited is serve with limits.
func serveLimited(tb testing.TB, limits controlplane.Limits, more ...controlplane.Part) *world {
	tb.Helper()
	return serveWith(tb, memory.Store{}, limits, more...)
}

func serveWith(tb testing.TB, storage controlplane.Storage, limits controlplane.Limits, more ...controlplane.Part) *world {
	tb.Helper()
	dir := tb.TempDir()
	w := &world{dir: dir, audit: filepath.Join(dir, "audit.log")}
	kubeconfig, tokens := filepath.Join(dir, "admin.kubeconfig"), filepath.Join(dir, "tokens.csv")
	var lines strings.Builder
	for name, groups := range users() {
		fmt.Fprintf(&lines, "%s,%s,uid-of-%s,%q\n", tokenOf(name), name, name, groups)
	}
	if err := os.WriteFile(tokens, []byte(lines.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	parts := append([]controlplane.Part{}, more...)
	if !slices.ContainsFunc(more, func(p controlplane.Part) bool { _, is := p.(serviceaccount.Tokens); return is }) {
		parts = append(parts, serviceaccount.Tokens{Dir: filepath.Join(dir, "pki")})
	}
	parts = append(parts,
		authn.Admin{Dir: filepath.Join(dir, "pki"), Kubeconfig: kubeconfig}, authn.Tokens{File: tokens},
		authz.RBAC{}, standard(more), aggregator.APIServices{}, insight.Status{}, insight.Maintenance{}, backup.Endpoint{},
		crd.Definitions{FS: os.DirFS("testdata/crds"), Deny: admit.PrivateNetworks()},
		fairness.PriorityAndFairness{}, kube.FlowControl(), auditing.Log{Path: w.audit},
	)
	s, err := controlplane.New("security").Listen("127.0.0.1:0").Storage(storage).Limits(limits).With(parts...).Build()
	if err != nil {
		tb.Fatal(err)
	}
	w.server = s
	w.run(tb)
	if w.admin, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		tb.Fatal(err)
	}
	w.admin.QPS = -1
	w.base, w.address = strings.TrimSuffix(w.admin.Host, "/"), s.Address().String()
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM(w.admin.CAData)
	w.plain = w.client(tb, nil)
	certificate, err := tls.X509KeyPair(w.admin.CertData, w.admin.KeyData)
	if err != nil {
		tb.Fatal(err)
	}
	w.certified = w.client(tb, &certificate)
	w.furnish(tb)
	return w
}

// standard are the parts of the preset, with the networks denied to webhooks that
// an operator would deny, and without those that a test brings itself.
func standard(more []controlplane.Part) controlplane.Parts {
	var parts controlplane.Parts
	for _, p := range (preset.Custom{WebhookDeny: admit.PrivateNetworks()}).Parts() {
		same := func(m controlplane.Part) bool { return reflect.TypeOf(m) == reflect.TypeOf(p) }
		if !slices.ContainsFunc(more, same) {
			parts = append(parts, p)
		}
	}
	return parts
}

// run runs the server until the test ends, and returns when it is ready.
func (w *world) run(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("run: %v", err)
		}
		logs.noPanic(tb)
	})
	select {
	case <-w.server.Ready():
	case err := <-ended:
		ended <- nil
		tb.Fatalf("run: %v", err)
	case <-time.After(limit):
		tb.Fatal("the server is not ready")
	}
}

// tls is the configuration of a client.
func (w *world) tls(certificate *tls.Certificate, protocols ...string) *tls.Config {
	c := &tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS12, NextProtos: protocols}
	if certificate != nil {
		// Also one of an authority that the server does not ask for.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return c
}

func (w *world) client(tb testing.TB, certificate *tls.Certificate) *http.Client {
	tb.Helper()
	t := &http.Transport{TLSClientConfig: w.tls(certificate), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 8}
	tb.Cleanup(t.CloseIdleConnections)
	return &http.Client{
		Transport: t, Timeout: limit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// furnish creates the objects that attempts are about, in the order of the file.
func (w *world) furnish(tb testing.TB) {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "world.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		path, object, _ := strings.Cut(strings.TrimSpace(document), "\n")
		body, err := yaml.ToJSON([]byte(object))
		if err != nil {
			tb.Fatal(err)
		}
		w.must(tb, request{method: "POST", path: strings.TrimPrefix(path, "# POST "), body: string(body)}, http.StatusCreated)
	}
	w.awaitFairness(tb)
	// Roles count when the server has seen them.
	w.await(tb, request{as: "reader", method: "GET", path: open}, http.StatusOK)
	w.await(tb, request{as: "named", method: "GET", path: gourds + "/status"}, http.StatusOK)
	w.await(tb, request{as: "impersonator", method: "GET", path: open, header: map[string]string{"Impersonate-User": "reader"}}, http.StatusOK)
	w.await(tb, request{as: "editor", method: "GET", path: open}, http.StatusOK)
	w.await(tb, request{as: "chief", method: "GET", path: open}, http.StatusOK)
	w.await(tb, request{as: "watcher", method: "GET", path: tenant + "/configmaps?fieldSelector=metadata.name%3Dopen"}, http.StatusOK)
	w.await(tb, request{as: "climber", method: "GET", path: rbacv1 + "/clusterroles"}, http.StatusOK)
	w.await(tb, request{as: "userized", method: "GET", path: open, header: map[string]string{"Impersonate-User": "reader"}}, http.StatusOK)
	w.await(tb, request{as: "definer", method: "GET", path: tenant + "/configmaps/none"}, http.StatusNotFound)
	w.await(tb, request{as: "mender", method: "POST", path: insight.MaintenancePath}, http.StatusBadRequest)
	w.await(tb, request{as: "outside", method: "GET", path: gourds + "/status/status"}, http.StatusOK)
	w.await(tb, request{method: "GET", path: vault + "/configmaps", as: admin, header: keeper()}, http.StatusOK)
}

// keeper are headers with which the administrator is the account of namespace vault.
func keeper() map[string]string {
	return map[string]string{"Impersonate-User": "system:serviceaccount:vault:keeper", "Impersonate-Group": "system:serviceaccounts"}
}

// awaitFairness waits until users and accounts have priority levels of their
// own. Before the server has seen those all share one, which refuses much.
func (w *world) awaitFairness(tb testing.TB) {
	tb.Helper()
	for name, r := range map[string]request{
		"global-default":   {as: "reader", method: "GET", path: open},
		"service-accounts": {as: admin, method: "GET", path: open, header: keeper()},
	} {
		var schema metav1.PartialObjectMetadata
		a := w.must(tb, request{method: "GET", path: "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/" + name}, http.StatusOK)
		if err := json.Unmarshal([]byte(a.body), &schema); err != nil {
			tb.Fatal(err)
		}
		for end := time.Now().Add(limit); w.send(tb, r).header.Get("X-Kubernetes-Pf-Flowschema-Uid") != string(schema.UID); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				tb.Fatalf("FlowSchema %s is not used", name)
			}
		}
	}
}

const (
	tenant = "/api/v1/namespaces/tenant"
	open   = tenant + "/configmaps/open"
	vault  = "/api/v1/namespaces/vault"
	crown  = vault + "/secrets/crown"
	gourds = "/apis/security.example.com/v1/namespaces/tenant/gourds"
	melons = "/apis/security.example.com/v1/namespaces/tenant/melons"
	rbacv1 = "/apis/rbac.authorization.k8s.io/v1"
)

// admin is who request.as is to have all rights.
const admin = "admin"

// request is one that is sent through Go's client.
type request struct {
	// as is a user of users(), or admin, or nobody when it is empty.
	as           string
	method, path string
	header       map[string]string
	contentType  string // JSON when there is a body
	body         string
	// values is how many values body has of a custom resource with a schema.
	values int
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   string
}

// send sends a request. An answer with the treasure fails the test, but for
// that of the administrator.
func (w *world) send(tb testing.TB, r request) answer {
	tb.Helper()
	a, err := w.try(tb.Context(), r)
	if err != nil {
		tb.Fatalf("%s %s: %v", r.method, short(r.path), err)
	}
	if r.as != admin {
		a.hasNoTreasure(tb)
	}
	return a
}

func (a answer) hasNoTreasure(tb testing.TB) {
	tb.Helper()
	for _, form := range []string{treasure, base64.StdEncoding.EncodeToString([]byte(treasure))} {
		if strings.Contains(a.body, form) {
			tb.Errorf("the treasure is in the answer: %d %s", a.code, short(a.body))
		}
	}
}

func (w *world) try(ctx context.Context, r request) (answer, error) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, w.base+r.path, body)
	if err != nil {
		return answer{}, err
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	client := w.plain
	switch r.as {
	case "":
	case admin:
		client = w.certified
	default:
		req.Header.Set("Authorization", "Bearer "+tokenOf(r.as))
	}
	for name, value := range r.header {
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return answer{code: resp.StatusCode, header: resp.Header, body: string(read)}, err
}

// must sends a request of the administrator that has to be answered so, unless
// it is somebody else's.
func (w *world) must(tb testing.TB, r request, code int) answer {
	tb.Helper()
	if r.as == "" {
		r.as = admin
	}
	a := w.send(tb, r)
	if a.code != code {
		tb.Fatalf("%s %s as %s: %d, want %d: %s", r.method, short(r.path), r.as, a.code, code, short(a.body))
	}
	return a
}

// await sends a request until it is answered so.
func (w *world) await(tb testing.TB, r request, code int) answer {
	tb.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		a := w.send(tb, r)
		if a.code == code {
			return a
		}
		if time.Now().After(end) {
			tb.Fatalf("%s %s as %s: %d, want %d: %s", r.method, r.path, r.as, a.code, code, short(a.body))
		}
	}
}

// unharmed tells whether the server serves, keeps its treasure, and did not panic.
func (w *world) unharmed(tb testing.TB) {
	tb.Helper()
	logs.noPanic(tb)
	want := base64.StdEncoding.EncodeToString([]byte(treasure))
	if a := w.must(tb, request{method: "GET", path: crown}, http.StatusOK); !strings.Contains(a.body, want) {
		tb.Errorf("the treasure is gone: %s", a.body)
	}
	if a := w.must(tb, request{method: "GET", path: vault + "/secrets"}, http.StatusOK); strings.Count(a.body, `"name":"crown`) != 1 {
		tb.Errorf("the vault was written to: %s", a.body)
	}
	w.must(tb, request{as: "reader", method: "GET", path: open}, http.StatusOK)
}

// statusOf reads the Status that an error of the API is.
func statusOf(a answer) (metav1.Status, error) {
	s := metav1.Status{}
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		return s, fmt.Errorf("the error is no JSON: %w", err)
	}
	if s.Kind != "Status" || s.APIVersion != "v1" {
		return s, fmt.Errorf("the error is a %s %s, not a Status", s.APIVersion, s.Kind)
	}
	return s, nil
}

func short(s string) string {
	const most = 600
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
