package security

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/admit"
)

// TestWebhooks: who may write webhook configurations does not reach what the
// server reaches.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), webhookAttempts())
}

// webhook is a configuration for ConfigMaps of namespace tenant.
func webhook(name, url, more string) string {
	return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"` + name + `"},"webhooks":[{` +
		`"name":"` + name + `.example.com","clientConfig":{"url":"` + url + `"},"sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Fail","timeoutSeconds":10,` +
		`"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"tenant"}},` +
		`"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]` + more + `}]}`
}

func webhookAttempts() map[string]attempt {
	all := map[string]attempt{}
	for name, hosts := range map[string][]string{
		"loopback":                  {"127.0.0.1:%d", "127.1.2.3:%d", "localhost:%d", "LOCALHOST:%d"},
		"loopback in other forms":   {"[::1]:%d", "[::ffff:127.0.0.1]:%d", "[::ffff:7f00:1]:%d", "0.0.0.0:%d", "[::]:%d"},
		"private networks":          {"10.0.0.1:%d", "192.168.0.1:%d", "172.16.0.1:%d", "100.64.0.1:%d", "[fd00::1]:%d", "[fe80::1]:%d", "[64:ff9b::7f00:1]:%d"},
		"metadata service of cloud": {"169.254.169.254:%d", "[fd00:ec2::254]:%d"},
	} {
		all[name] = attempt{reason: "the address that is connected to is denied", try: func(t *testing.T, w *world) {
			port, called := listener(t)
			for i, h := range hosts {
				id := fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i)
				w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingwebhookconfigurations", body: webhook(id, "https://"+fmt.Sprintf(h, port)+"/a", "")}, http.StatusCreated)
				w.refusedBy(t, "the server denies")
				w.must(t, request{as: "definer", method: "DELETE", path: admission + "/validatingwebhookconfigurations/" + id}, http.StatusOK)
				w.await(t, request{as: "definer", method: "POST", path: tenant + "/configmaps?dryRun=All", body: configMap("free", "{}")}, http.StatusCreated)
			}
			if n := called.Load(); n != 0 {
				t.Errorf("%d connections were made", n)
			}
		}}
	}
	all["metadata service of cloud, by default"] = attempt{reason: "it is denied without being named", try: func(t *testing.T, _ *world) {
		w := serve(t, admit.ValidatingWebhooks{})
		w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingwebhookconfigurations", body: webhook("metadata", "https://169.254.169.254/latest", "")}, http.StatusCreated)
		w.refusedBy(t, "the server denies 169.254.0.0/16")
	}}
	all["redirect of a webhook"] = attempt{reason: "where it leads may be denied, or be inside", try: func(t *testing.T, _ *world) {
		port, called := listener(t)
		s := httptest.NewTLSServer(http.RedirectHandler(fmt.Sprintf("https://127.0.0.1:%d/inside", port), http.StatusTemporaryRedirect))
		t.Cleanup(s.Close)
		ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		w := serve(t, admit.ValidatingWebhooks{})
		w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingwebhookconfigurations", body: strings.Replace(webhook("redirect", s.URL, ""), `{"url"`, `{"caBundle":"`+ca+`","url"`, 1)}, http.StatusCreated)
		w.refusedBy(t, "failed calling webhook")
		if n := called.Load(); n != 0 {
			t.Errorf("%d connections were made", n)
		}
	}}
	all["URL that is none"] = attempt{reason: "a URL is https, without credentials, query and fragment", try: func(t *testing.T, w *world) {
		for _, url := range []string{
			"http://webhook.example.com/", "file:///etc/passwd", "gopher://a/", "https://u:p@webhook.example.com/", "https://webhook.example.com/?a=b", "https://webhook.example.com/#a", "//a/", "https:///a",
		} {
			w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingwebhookconfigurations", body: webhook("none", url, "")}, http.StatusUnprocessableEntity)
		}
	}}
	all["the server itself"] = attempt{reason: "a webhook with the server's name in a cluster does not get its own credentials", try: func(t *testing.T, w *world) {
		w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingwebhookconfigurations", body: webhook("self", "https://kubernetes.default.svc:443/api/v1/namespaces/vault/configmaps", "")}, http.StatusCreated)
		w.refusedBy(t, "failed calling webhook")
		w.notCalled(t)
		w.must(t, request{as: "definer", method: "DELETE", path: admission + "/validatingwebhookconfigurations/self"}, http.StatusOK)
		w.await(t, request{as: "definer", method: "POST", path: tenant + "/configmaps?dryRun=All", body: configMap("free", "{}")}, http.StatusCreated)
	}}
	all["conversion by the server itself"] = attempt{reason: "a conversion webhook with the server's name in a cluster does not get its own credentials", try: func(t *testing.T, w *world) {
		if a := w.converted(t, "conversions", "https://kubernetes.default.svc:443"+vault+"/configmaps"); a.code < 400 {
			t.Errorf("%d %s", a.code, a.body)
		}
		w.notCalled(t)
	}}
	all["conversion in private networks"] = attempt{reason: "the address that is connected to is denied", try: func(t *testing.T, w *world) {
		port, called := listener(t)
		for i, h := range []string{"127.0.0.1:%d", "localhost:%d", "[::1]:%d", "[::ffff:127.0.0.1]:%d", "0.0.0.0:%d", "10.0.0.1:%d", "169.254.169.254:%d", "[fd00:ec2::254]:%d"} {
			a := w.converted(t, fmt.Sprintf("privates%d", i), "https://"+fmt.Sprintf(h, port)+"/a")
			if a.code < 400 || !strings.Contains(a.body, "the server denies") {
				t.Errorf("%s: %d %s", h, a.code, a.body)
			}
		}
		if n := called.Load(); n != 0 {
			t.Errorf("%d connections were made", n)
		}
	}}
	return all
}

// converted asks for an object in a version that the conversion webhook at a
// URL makes of the stored one.
func (w *world) converted(t *testing.T, plural, url string) answer {
	t.Helper()
	path := "/apis/bombs.example.com/%s/" + plural
	version := `{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	body := strings.TrimSuffix(definition(plural, `{"type":"object"}`), "]}}") + "," + version +
		`],"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"` + url + `"}}}}}`
	w.must(t, request{as: "definer", method: "POST", path: definitions, body: body}, http.StatusCreated)
	w.await(t, request{as: "definer", method: "GET", path: fmt.Sprintf(path, "v1")}, http.StatusOK)
	w.must(t, request{as: "definer", method: "POST", path: fmt.Sprintf(path, "v1"), body: `{"apiVersion":"bombs.example.com/v1","kind":"Bomb` + plural + `","metadata":{"name":"a"}}`}, http.StatusCreated)
	return w.send(t, request{as: "definer", method: "GET", path: fmt.Sprintf(path, "v2") + "/a"})
}

// notCalled tells whether the server sent nothing to itself.
func (w *world) notCalled(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(w.audit)
	if err != nil || len(content) == 0 {
		t.Fatalf("the log: %d bytes, %v", len(content), err)
	}
	for l := range strings.Lines(string(content)) {
		if strings.Contains(l, `"requestURI":"`+vault+`/configmaps`) {
			t.Errorf("the server called itself: %s", l)
		}
	}
}

// listener counts who connects to it.
func listener(t *testing.T) (port int, called *atomic.Int32) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	called = &atomic.Int32{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			called.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%T", l.Addr())
	}
	return addr.Port, called
}
