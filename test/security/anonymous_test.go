package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/insight"
)

// TestAnonymous: without credentials that the server knows nothing is answered
// but 401, whatever the path, also when anonymous callers may ask for one.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	attack(t, serve(t, authn.Anonymous{Paths: []string{"/livez"}}), anonymousAttempts())
}

func anonymousAttempts() map[string]attempt {
	everywhere := func(header map[string]string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			for _, r := range w.requests(t) {
				if r.path == "/livez" && header == nil {
					continue // see "the path that is open"
				}
				r.header = header
				w.unauthorized(t, r)
			}
		}
	}
	return map[string]attempt{
		"no credentials": {reason: "every path needs them", try: everywhere(nil)},
		"wrong token":    {reason: "a token nobody knows is no token", try: everywhere(map[string]string{"Authorization": "Bearer wrong"})},
		"own certificate": {reason: "the authority is not trusted", try: func(t *testing.T, w *world) {
			stolen := *w
			stolen.plain = w.client(t, selfSigned(t, pkix.Name{CommonName: "sailplane-admin", Organization: []string{"system:masters"}}))
			for _, r := range stolen.requests(t) {
				stolen.unauthorized(t, r)
			}
		}},
		"other methods": {reason: "a method is no credential", try: func(t *testing.T, w *world) {
			for _, r := range w.requests(t) {
				if r.method != http.MethodGet || r.path == "/livez" {
					continue
				}
				for _, m := range []string{"HEAD", "OPTIONS", "TRACE", "PROPFIND", "get"} {
					r.method = m
					w.unauthorized(t, r)
				}
			}
		}},
		"the path that is open": {reason: "it stands for itself alone", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "stranger", method: "GET", path: "/livez"}, http.StatusOK)
			if a := w.send(t, request{method: "GET", path: "/livez"}); a.code != http.StatusOK || a.body != "ok" {
				t.Errorf("/livez: %d %s", a.code, a.body)
			}
			for _, p := range []string{
				"/livez/", "/livez/ping", "/livez/..", "/livez/../api", "/livez/..%2fapi", "/livez%2f..%2fapi", "//livez", "/livez//", "/./livez",
				"/livez%00", "/livez;/api", "/livez%3f", "/LIVEZ", "/livez%20", "/livez.", "/api/../livez/../api", "/readyz", "/healthz", "/",
			} {
				w.unauthorized(t, request{method: "GET", path: p})
			}
		}},
		"a stranger with credentials": {reason: "who logs in may only discover, and ask about themselves", try: func(t *testing.T, w *world) {
			w.onlyDiscovers(t, "stranger")
		}},
	}
}

// onlyDiscovers sends requests of every kind as a user, who may discover, and ask about themselves, and send those that are
// named.
func (w *world) onlyDiscovers(t *testing.T, name string, but ...string) {
	t.Helper()
	// Default roles of Kubernetes: system:discovery, system:public-info-viewer, system:basic-user.
	allowed := regexp.MustCompile(`^(GET /(api|apis|openapi)(/.*)?|GET /(healthz|livez|readyz|version)/?(\?verbose)?|` +
		`POST /apis/authorization.k8s.io/v1/self\w+reviews|POST /apis/authentication.k8s.io/v1/selfsubjectreviews)$`)
	resource := regexp.MustCompile(`^/(api|apis/[^/]+)/[^/]+/.+`)
	for _, r := range w.requests(t) {
		what := r.method + " " + r.path
		if slices.Contains(but, what) || allowed.MatchString(what) && (!resource.MatchString(r.path) || strings.Contains(r.path, "/self")) {
			continue
		}
		r.as = name
		if a := w.send(t, r); a.code != http.StatusForbidden {
			t.Errorf("%s as %s: %d %s", what, name, a.code, short(a.body))
		}
	}
}

// unauthorized sends a request to which 401 is the answer, and nothing else.
func (w *world) unauthorized(t *testing.T, r request) {
	t.Helper()
	a := w.send(t, r)
	if a.code != http.StatusUnauthorized {
		t.Errorf("%s %s: %d %s", r.method, r.path, a.code, short(a.body))
		return
	}
	if r.method == http.MethodHead {
		return
	}
	if s, err := statusOf(a); err != nil || s.Message != "Unauthorized" || s.Details != nil {
		t.Errorf("%s %s: %v: the answer tells more than it should: %s", r.method, r.path, err, short(a.body))
	}
}

// requests is one of every method for every path that the server says it has,
// and for those it does not speak of.
func (w *world) requests(t *testing.T) []request {
	t.Helper()
	found := map[[2]string]bool{}
	add := func(method, path string) { found[[2]string{path, method}] = true }
	var root struct{ Paths []string }
	w.read(t, "/", &root)
	for _, p := range root.Paths {
		add("GET", p)
		if strings.HasPrefix(p, "/api") && strings.Count(p, "/") >= 2 {
			w.discover(t, p, add)
		}
	}
	w.specified(t, add)
	for _, name := range []string{
		"/", "/api", "/apis", "/api/v1", "/metrics", "/metrics/slis", "/metrics/cadvisor", "/healthz", "/livez", "/readyz", "/readyz?verbose", "/version", "/version/",
		"/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_queues", "/logs", "/logs/", "/flagz", "/statusz",
		"/configz", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/.well-known/openid-configuration", "/openid/v1/jwks", "/swagger.json", "/swaggerapi",
		"/validate", "/stats", "/ui", "/proxy", "/apis/none.example.com/v1/things", "/none",
	} {
		add("GET", name)
	}
	add("GET", backup.Path)
	add("GET", insight.Path)
	for _, do := range []string{"", "?do=compact", "?do=defragment"} {
		add("POST", insight.MaintenancePath+do)
	}
	if len(found) < 400 {
		t.Fatalf("only %d paths were found", len(found))
	}
	var all []request
	for _, k := range slices.SortedFunc(maps.Keys(found), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		all = append(all, request{method: k[1], path: k[0]})
	}
	return all
}

// discover adds what is served of a group and version.
func (w *world) discover(t *testing.T, groupVersion string, add func(method, path string)) {
	t.Helper()
	methods := map[string]string{
		"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE",
	}
	var list metav1.APIResourceList
	w.read(t, groupVersion, &list)
	for _, r := range list.APIResources {
		name, sub, _ := strings.Cut(r.Name, "/")
		base := groupVersion + "/"
		if r.Namespaced {
			base += "namespaces/vault/"
		}
		for _, verb := range r.Verbs {
			path := base + name
			if verb != "list" && verb != "create" && verb != "deletecollection" && verb != "watch" || sub != "" {
				path += "/crown"
			}
			if sub != "" {
				path += "/" + sub
			}
			add(methods[verb], path)
			switch verb {
			case "watch":
				add("GET", path+"?watch=true")
				add("GET", groupVersion+"/watch/"+name)
			case "list":
				add("GET", groupVersion+"/"+name)
			}
		}
	}
}

// specified adds what the OpenAPI documents have.
func (w *world) specified(t *testing.T, add func(method, path string)) {
	t.Helper()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	w.read(t, "/openapi/v3", &index)
	parameter := regexp.MustCompile(`\{[^}]+\}`)
	for _, document := range index.Paths {
		var spec struct {
			Paths map[string]map[string]json.RawMessage
		}
		w.read(t, document.ServerRelativeURL, &spec)
		for path, item := range spec.Paths {
			path = parameter.ReplaceAllString(strings.ReplaceAll(path, "{namespace}", "vault"), "crown")
			for _, method := range []string{"get", "put", "post", "patch", "delete"} {
				if item[method] != nil {
					add(strings.ToUpper(method), path)
				}
			}
		}
	}
}

// read gets what the administrator sees.
func (w *world) read(t *testing.T, path string, into any) {
	t.Helper()
	a := w.must(t, request{method: "GET", path: path, header: map[string]string{"Accept": "application/json"}}, http.StatusOK)
	if err := json.Unmarshal([]byte(a.body), into); err != nil && path != "/" {
		// Some paths of the index are no lists of resources.
		t.Logf("%s: %v", path, err)
	}
}

// selfSigned is a certificate that nobody vouches for.
func selfSigned(t *testing.T, subject pkix.Name) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
