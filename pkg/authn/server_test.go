package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestMain has every test of the package leave nothing running.
func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// who is what the server of a test answers to every request.
type who struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
	Header    http.Header
	status    int
	retry     string // header Retry-After
}

// echo answers with who calls, right after authentication.
func echo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if middleware.Internal(r) {
			next.ServeHTTP(w, r)
			return
		}
		u, _ := request.UserFrom(r.Context())
		_ = json.NewEncoder(w).Encode(who{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra(), Header: r.Header})
	})
}

// serve runs a server with the parts, behind those of a certificate, until the
// test ends, and returns its URL.
func serve(t *testing.T, parts ...controlplane.Part) string {
	t.Helper()
	return serveWith(t, append(parts, authn.Admin{})...)
}

// serveWith is serve without the parts of a certificate.
func serveWith(t *testing.T, parts ...controlplane.Part) string {
	t.Helper()
	parts = append(parts, middleware.AfterAuthentication("echo", echo))
	s, err := controlplane.New("test").Listen("127.0.0.1:0").Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, s.Ready())
	return "https://" + s.Address().String()
}

// run runs a server until the test ends, and returns when a moment of its start has come.
func run(t *testing.T, s *controlplane.Server, moment <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-moment:
	case err := <-done:
		done <- nil
		t.Fatalf("Run: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("not there after a minute")
	}
}

// buildError builds a server with a part, and returns what is wrong.
func buildError(t *testing.T, part controlplane.Part) error {
	t.Helper()
	_, err := controlplane.New("test").Storage(memory.Store{}).With(part).Build()
	return err
}

// call is a request of a test.
type call struct {
	path   string // "/version" when empty
	token  string
	header http.Header
	cert   *tls.Certificate
}

// clientOf is a client with a certificate, or without one.
func clientOf(cert *tls.Certificate) *http.Client {
	config := &tls.Config{InsecureSkipVerify: true} // what the server proves is not what is tested
	if cert != nil {
		// As client-go does: whatever authorities the server names.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: time.Minute}
}

// pemOf is the certificate of a server that was started for a test.
func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (c call) do(t *testing.T, url string) who {
	t.Helper()
	client := clientOf(c.cert)
	defer client.CloseIdleConnections()
	if c.path == "" {
		c.path = "/version"
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+c.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.header != nil {
		r.Header = c.header.Clone()
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := who{}
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
	}
	answer.status, answer.retry = resp.StatusCode, resp.Header.Get("Retry-After")
	return answer
}

// eventually calls until the answer is what is wanted.
func eventually(t *testing.T, reason, url string, c call, ok func(who) bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got := c.do(t, url)
		if ok(got) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still %d, %+v", reason, got.status, got)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func refused(w who) bool { return w.status == http.StatusUnauthorized }

func named(name string) func(who) bool {
	return func(w who) bool { return w.status == http.StatusOK && w.Name == name }
}

// replace puts content into a file as one step.
func replace(t *testing.T, file string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file+".new", content, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file+".new", mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// ca is a certificate authority of a test.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) *ca { return newCAUntil(t, soon()) }

func newCAUntil(t *testing.T, until time.Time) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test ca " + rand.Text()},
		NotBefore: past(), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{cert: cert, key: key}
}

func (c *ca) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// file writes the authority's certificate.
func (c *ca) file(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	replace(t, file, c.pem(), 0o644)
	return file
}

// sign gives out a client certificate that ends at some time.
func (c *ca) sign(t *testing.T, until time.Time, name string, groups ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		// Package x509 picks a serial number.
		Subject:   pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func soon() time.Time { return time.Now().Add(time.Hour) }
func past() time.Time { return time.Now().Add(-time.Hour) }

func TestFields(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		part   controlplane.Part
		want   string
	}{
		"tokens":            {"there is no default file", authn.Tokens{}, `part "authn.Tokens": field File: is empty`},
		"client ca":         {"there is no default file", authn.ClientCA{}, `part "authn.ClientCA": field File: is empty`},
		"client ca groups":  {"a star stands at the end", authn.ClientCA{File: "x", Groups: []string{"*a"}}, `field Groups[0]: "*a": want a name, or the beginning`},
		"admin lifetime":    {"it would be renewed all the time", authn.Admin{Lifetime: time.Minute}, `field Lifetime: 1m0s: want an hour or more`},
		"serving":           {"there is no default file", authn.ServingCertificate{CertFile: "x"}, `fields CertFile and KeyFile: one is empty`},
		"proxy":             {"whoever proves nothing is no proxy", authn.Proxy{}, `part "authn.Proxy": field ClientCAFile: is empty`},
		"proxy names":       {"an empty name would match", authn.Proxy{ClientCAFile: "x", AllowedNames: []string{""}}, `field AllowedNames: a name is empty`},
		"proxy user":        {"not a header", authn.Proxy{ClientCAFile: "x", UsernameHeaders: []string{"X User"}}, `field UsernameHeaders[0]: "X User": want a header name, such as X-Remote-User`},
		"proxy groups":      {"an empty header", authn.Proxy{ClientCAFile: "x", GroupHeaders: []string{"X-Group", ""}}, `field GroupHeaders[1]: "": want`},
		"proxy uid":         {"not a header", authn.Proxy{ClientCAFile: "x", UIDHeaders: []string{"uid:"}}, `field UIDHeaders[0]: "uid:": want`},
		"proxy extra":       {"an empty prefix is every header", authn.Proxy{ClientCAFile: "x", ExtraHeaderPrefixes: []string{""}}, `field ExtraHeaderPrefixes[0]: "": want`},
		"webhook":           {"there is no default server", authn.Webhook{}, `part "authn.Webhook": field ConfigFile: is empty`},
		"webhook ttl":       {"a mistake", authn.Webhook{ConfigFile: "x", CacheTTL: -1}, `field CacheTTL: -1ns: want a positive duration`},
		"webhook audiences": {"no token is for nobody", authn.Webhook{ConfigFile: "x", Audiences: []string{""}}, `field Audiences: an audience is empty`},
		"anonymous pattern": {"patterns do not work", authn.Anonymous{Paths: []string{"/livez/*"}}, `field Paths[0]: "/livez/*": want one path`},
		"anonymous folder":  {"it would match nothing", authn.Anonymous{Paths: []string{"/livez", "/readyz/"}}, `field Paths[1]: "/readyz/": want one path`},
		"anonymous name":    {"a path starts at the root", authn.Anonymous{Paths: []string{"livez"}}, `field Paths[0]: "livez": want one path`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := controlplane.New("test").Storage(memory.Store{}).With(tc.part).Build()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}

// TestAnonymousZero: without paths, those that probes ask for are open and no others.
func TestAnonymousZero(t *testing.T) {
	t.Parallel()
	url := serve(t, authn.Anonymous{})
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version"} {
		if got := (call{path: path}).do(t, url); !named("system:anonymous")(got) {
			t.Errorf("%s is open: got %d, %+v", path, got.status, got)
		}
	}
	for _, path := range []string{"/", "/api", "/apis", "/metrics", "/openapi/v2", "/healthz/ping", "/livez/ping", "/readyz/ping"} {
		if got := (call{path: path}).do(t, url); !refused(got) {
			t.Errorf("%s is not open: got %d, %+v", path, got.status, got)
		}
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	tokens := tokenFile(t, "good,ann,\n")
	authority := newCA(t)
	for name, parts := range map[string][]controlplane.Part{
		"last":  {authn.Tokens{File: tokens}, authn.ClientCA{File: authority.file(t)}, authn.Anonymous{Paths: []string{"/livez", "/version"}}},
		"first": {authn.Anonymous{Paths: []string{"/livez", "/version"}}, authn.Tokens{File: tokens}, authn.ClientCA{File: authority.file(t)}},
	} {
		url := serve(t, parts...)
		protocol := http.Header{
			"Upgrade": {"websocket"}, "Connection": {"upgrade"},
			"Sec-Websocket-Protocol": {"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YmFk"},
		}
		cases := map[string]struct {
			reason string
			call   call
			ok     func(who) bool
		}{
			"named":          {"a named path needs no credentials", call{path: "/livez"}, named("system:anonymous")},
			"query":          {"a query is no part of the path", call{path: "/livez?verbose"}, named("system:anonymous")},
			"below":          {"what is below is another path", call{path: "/livez/ping"}, refused},
			"elsewhere":      {"everything else needs credentials", call{path: "/api"}, refused},
			"unclean":        {"no path is made another one", call{path: "//livez"}, refused},
			"headers":        {"nobody gets a name by asking", call{header: http.Header{"X-Remote-User": {"root"}}}, named("system:anonymous")},
			"token":          {"who is known is not anonymous", call{token: "good"}, named("ann")},
			"bad token":      {"a bad token is never anonymous", call{token: "bad"}, refused},
			"password":       {"nor is a password", call{header: http.Header{"Authorization": {"Basic YTpi"}}}, refused},
			"websocket":      {"nor a bad token of a websocket", call{header: protocol}, refused},
			"certificate":    {"who has a certificate is not anonymous", call{cert: authority.sign(t, soon(), "bob")}, named("bob")},
			"bad cert":       {"a bad certificate is never anonymous", call{cert: newCA(t).sign(t, soon(), "bob")}, refused},
			"old cert":       {"nor is an expired one", call{cert: authority.sign(t, past(), "bob")}, refused},
			"both bad":       {"nor are two", call{token: "bad", cert: newCA(t).sign(t, soon(), "bob")}, refused},
			"bad token, bob": {"another authenticator may know who calls", call{token: "bad", cert: authority.sign(t, soon(), "bob")}, named("bob")},
		}
		for n, tc := range cases {
			if got := tc.call.do(t, url); !tc.ok(got) {
				t.Errorf("%s, %s: %s: %d, %+v", name, n, tc.reason, got.status, got)
			}
		}
		if got := (call{}).do(t, url); strings.Join(got.Groups, ",") != "system:unauthenticated" {
			t.Errorf("groups of anonymous callers: %v", got.Groups)
		}
	}
}
