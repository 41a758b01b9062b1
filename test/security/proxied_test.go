package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/services"
)

const (
	apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"
	things      = "/apis/far.example.com/v1/namespaces/tenant/things"
	// sign is a header of the requests that a test looks for at the other server.
	sign = "X-Attempt"
)

// TestProxied: an aggregated server gets what was authorized, and nothing about who asks
// but what this server says.
func TestProxied(t *testing.T) {
	t.Parallel()
	f := startFar(t)
	w := serve(t, services.Addresses{"default/far": f.Listener.Addr().String()},
		authz.FilteredLists{Resources: []schema.GroupResource{{Group: "far.example.com", Resource: "things"}}})
	w.announce(t, "v1", "far", f.ca)
	w.must(t, request{method: "POST", path: rbacv1 + "/clusterroles", body: `{"metadata":{"name":"far"},"rules":[` +
		`{"apiGroups":["far.example.com"],"resources":["things"],"verbs":["get"],"resourceNames":["mine"]}]}`}, http.StatusCreated)
	w.must(t, request{method: "POST", path: rbacv1 + "/clusterrolebindings", body: `{"metadata":{"name":"far"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"far"},` +
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"stranger"}]}`}, http.StatusCreated)
	w.await(t, request{as: "stranger", method: "GET", path: things + "/mine"}, http.StatusOK)
	attack(t, w, proxiedAttempts(f))
}

// aggregated is the server of a group elsewhere.
type aggregated struct {
	*httptest.Server
	ca string

	mu  sync.Mutex
	got map[string]*http.Request // by their sign
}

func startFar(t *testing.T) *aggregated {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"far.default.svc"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	f := &aggregated{got: map[string]*http.Request{}}
	f.ca = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	f.Server = httptest.NewUnstartedServer(f)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	f.StartTLS()
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP notes a request, and answers with an object or the redirect it asks for.
func (f *aggregated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name := r.Header.Get(sign); name != "" {
		f.mu.Lock()
		f.got[name] = r
		f.mu.Unlock()
	}
	if r.Header.Get("Upgrade") != "" {
		http.Error(w, "no upgrades here", http.StatusForbidden) // which ends the connection
		return
	}
	if to := r.URL.Query().Get("to"); to != "" {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"kind":"Thing","apiVersion":"far.example.com/v1","metadata":{"name":"mine"}}`)
}

// request returns the request with a sign that arrived; nil if none did.
func (f *aggregated) request(name string) *http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got[name]
}

// announce registers a version of the group at a Service.
func (w *world) announce(t *testing.T, version, service, ca string) {
	t.Helper()
	w.must(t, request{method: "POST", path: apiServices, body: `{"metadata":{"name":"` + version + `.far.example.com"},"spec":{"group":"far.example.com",` +
		`"version":"` + version + `","groupPriorityMinimum":500,"versionPriority":10,"caBundle":"` + ca + `",` +
		`"service":{"namespace":"default","name":"` + service + `"}}}`}, http.StatusCreated)
}

// identities are headers that say who somebody is, and that no client gets through.
func identities() map[string]string {
	all := map[string]string{
		"Cookie": "session=1", "Proxy-Authorization": "Bearer a", "X-Forwarded-Client-Cert": "Subject=a", "X-Forwarded-User": "chief",
		"X-Auth-Token": "a", "X-Ssl-Client-Cert": "a", "x_ssl_client_cert": "a", "Impersonate_user": "chief", "impersonate_group": "system:masters",
	}
	for _, name := range []string{"user", "group", "uid", "extra-scopes"} {
		for _, form := range []string{"X-Remote-%s", "x_remote_%s", "X_Remote-%s", "X-Remote_%s", "X.Remote.%s"} {
			all[fmt.Sprintf(form, strings.ReplaceAll(name, "-", form[1:2]))] = "system:masters"
		}
	}
	delete(all, "X-Remote-user")
	return all
}

func proxiedAttempts(f *aggregated) map[string]attempt {
	return map[string]attempt{
		"name that is a path": {reason: "the other server would read another path than was authorized", try: func(t *testing.T, w *world) {
			for i, name := range []string{
				"..%2f..%2fsecret", "%2e%2e%2fsecret", "..%2F..%2F..%2F..%2F..%2F..%2Fapi", "..%5csecret", `..\secret`, "../../secret", "%2e%2e/secret",
				"./mine", "%2e", "a%2fb", "mine;a=b", "mine%3ba", "mine%00", "mine%0a", "mine%7f", "mine%ff", "/mine",
			} {
				id := fmt.Sprintf("path-%d", i)
				a := w.raw(t, strings.Replace(line("", "GET", things+"/"+name, sign+": "+id), "\r\n", "\r\nAuthorization: Bearer "+tokenOf("stranger")+"\r\n", 1))
				b := w.rawAs(t, "GET", things+"/"+name, id)
				if len(a) != 1 || a[0].code < 400 || a[0].code > 499 || b.code != http.StatusBadRequest {
					t.Errorf("%s: %+v, and of the administrator %d %s", name, a, b.code, short(b.body))
				}
				if r := f.request(id); r != nil {
					t.Errorf("%s: the other server got %s", name, r.RequestURI)
				}
			}
		}},
		"headers of the proxy": {reason: "they say who the user is, in every spelling that a server may read", try: func(t *testing.T, w *world) {
			headers := maps.Clone(identities())
			headers[sign] = "headers"
			w.must(t, request{as: "stranger", method: "GET", path: things + "/mine", header: headers}, http.StatusOK)
			w.checkArrived(t, f.request("headers"))
		}},
		"headers of the proxy, upgraded": {reason: "an upgrade is sent another way", try: func(t *testing.T, w *world) {
			lines := []string{sign + ": upgrade", "Upgrade: websocket", "Connection: Upgrade, X-Remote-User", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
			for name, value := range identities() {
				lines = append(lines, name+": "+value)
			}
			content := line("stranger", "GET", things+"/mine?watch=0", lines...)
			w.raw(t, strings.Replace(content, "Connection: close\r\n", "", 1))
			r := f.request("upgrade")
			w.checkArrived(t, r)
			if r != nil && r.Header.Get("Connection") != "Upgrade" {
				t.Errorf("Connection: %s", r.Header.Get("Connection"))
			}
		}},
		"token in the protocols of a websocket": {reason: "a token that was not needed to log in is one still", try: func(t *testing.T, w *world) {
			token := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(tokenOf("chief")))
			w.send(t, request{as: "stranger", method: "GET", path: things + "/mine", header: map[string]string{sign: "protocols", "Sec-WebSocket-Protocol": token + ", v4.channel.k8s.io"}})
			if r := f.request("protocols"); r == nil || r.Header.Get("Sec-WebSocket-Protocol") != "v4.channel.k8s.io" {
				t.Errorf("the other server got %v", r)
			}
		}},
		"redirect of an aggregated server": {reason: "the client may follow it, with its own rights", try: func(t *testing.T, w *world) {
			port, called := listener(t)
			a := w.send(t, request{as: "stranger", method: "GET", path: things + fmt.Sprintf("/mine?to=https://127.0.0.1:%d/", port)})
			if a.code != http.StatusBadGateway || called.Load() != 0 {
				t.Errorf("%d, and %d connections were made", a.code, called.Load())
			}
		}},
		"list of an aggregated resource, filtered": {reason: "nobody can filter it, so nobody is asked", try: func(t *testing.T, w *world) {
			for i, query := range []string{"", "?watch=1", "?limit=1"} {
				id := fmt.Sprintf("list-%d", i)
				a := w.send(t, request{as: "stranger", method: "GET", path: things + query, header: map[string]string{sign: id}})
				if r := f.request(id); a.code != http.StatusForbidden || r != nil {
					t.Errorf("%q: %d %s, and the other server got %v", query, a.code, short(a.body), r)
				}
			}
		}},
		"aggregated server at a metadata service": {reason: "who may write Services does not get at what only the machine may reach", try: func(t *testing.T, w *world) {
			for i, name := range []string{"169.254.169.254", "100.100.100.200"} {
				service, version := fmt.Sprintf("meta%d", i), fmt.Sprintf("v%d", i+2)
				w.must(t, request{method: "POST", path: "/api/v1/namespaces/default/services", body: `{"metadata":{"name":"` + service + `"},"spec":{"type":"ExternalName","externalName":"` + name + `"}}`}, http.StatusCreated)
				w.announce(t, version, service, f.ca)
				path := apiServices + "/" + version + ".far.example.com"
				for end := time.Now().Add(limit); !strings.Contains(w.must(t, request{method: "GET", path: path}, http.StatusOK).body, "the server denies "+name[:4]); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal(w.must(t, request{method: "GET", path: path}, http.StatusOK).body)
					}
				}
			}
		}},
	}
}

// checkArrived tells whether a request says who the user is as the server does, and
// nothing else about that.
func (w *world) checkArrived(t *testing.T, r *http.Request) {
	t.Helper()
	if r == nil {
		t.Error("the request did not arrive")
		return
	}
	if got := r.Header["X-Remote-User"]; len(got) != 1 || got[0] != "stranger" {
		t.Errorf("X-Remote-User: %v", got)
	}
	for name, values := range r.Header {
		folded := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
		switch {
		case folded == "x-remote-uid" && name == "X-Remote-Uid" && values[0] == "uid-of-stranger":
		case name == "X-Remote-User" || name == "X-Remote-Group" && !strings.Contains(strings.Join(values, ""), "masters"):
		case strings.HasPrefix(folded, "x-remote-"), strings.HasPrefix(folded, "impersonate-"), strings.HasPrefix(folded, "x-ssl"),
			identities()[name] != "", folded == "authorization":
			t.Errorf("the other server got %s: %v", name, values)
		}
	}
}

// rawAs sends a path as it stands, as the administrator.
func (w *world) rawAs(t *testing.T, method, path, id string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.base, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Opaque = path
	r.Header.Set(sign, id)
	response, err := w.certified.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := readAll(response)
	if err != nil {
		t.Fatal(err)
	}
	return answer{code: response.StatusCode, body: body}
}
