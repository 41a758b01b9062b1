package security

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestPaths: however a path is written, it is authorized as what it is served
// as. Paths are sent raw, since clients clean them.
func TestPaths(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), pathAttempts())
}

func pathAttempts() map[string]attempt {
	all := map[string]attempt{}
	for name, paths := range map[string][]string{
		"dot dot": {
			open + "/../../../vault/secrets/crown", tenant + "/configmaps/../../vault/secrets/crown", tenant + "/../vault/secrets/crown",
			"/healthz/../api/v1/namespaces/vault/secrets/crown", "/version/../api/v1/secrets", "/openapi/../api/v1/secrets", "/apis/../api/v1/secrets",
			"/../api/v1/secrets", "/api/v1/namespaces/../secrets", open + "/..",
		},
		"encoded dots": {
			open + "/%2e%2e/%2e%2e/%2e%2e/vault/secrets/crown", tenant + "/configmaps/%2e%2e/%2E%2E/vault/secrets/crown", "/version/%2e%2e/api/v1/secrets",
			tenant + "/configmaps/.%2e/.%2e/vault/secrets/crown",
		},
		"encoded slash": {
			tenant + "/configmaps/..%2f..%2fvault%2fsecrets%2fcrown", tenant + "%2f..%2fvault/secrets/crown", "/api/v1/namespaces/tenant%2f..%2fvault/secrets/crown",
			"/version%2f..%2fapi%2fv1%2fsecrets", "/api%2fv1%2fnamespaces%2fvault%2fsecrets%2fcrown", "/%2fapi/v1/secrets", vault + "/secrets%2fcrown",
			tenant + "/configmaps%2fopen%2f..%2fclosed", "/api/v1/namespaces/vault%2fsecrets/crown",
		},
		"encoded twice": {
			tenant + "/configmaps/..%252f..%252fvault%252fsecrets%252fcrown", tenant + "/configmaps/%252e%252e/%252e%252e/vault/secrets/crown",
			vault + "%252fsecrets%252fcrown", "/version%252f..%252fapi",
		},
		"double slashes": {
			"//api/v1/namespaces/vault/secrets/crown", "/api//v1/namespaces/vault/secrets/crown", "/api/v1//namespaces/vault/secrets/crown",
			"/api/v1/namespaces//vault/secrets/crown", "/api/v1/namespaces/vault//secrets/crown", vault + "/secrets//crown", crown + "//", "/api/v1/namespaces//secrets",
			"///api///v1///secrets", "/apis//v1/secrets", "/openapi//api/v1/secrets", "/api/v1/namespaces/tenant//configmaps/closed",
		},
		"backslash": {
			tenant + `\..\vault\secrets\crown`, tenant + "/configmaps/..%5c..%5cvault%5csecrets%5ccrown", `/api\v1\secrets`, "/version/..%5capi%5cv1%5csecrets",
		},
		"dots and parameters": {
			"/./api/v1/secrets", vault + "/./secrets/crown", crown + "/.", vault + ";a=b/secrets/crown", crown + ";a", "/version;/../api/v1/secrets",
			tenant + "/configmaps/open;/closed", "/api/v1;/secrets",
		},
		"zero bytes and spaces": {
			crown + "%00", tenant + "/configmaps/open%00/../closed", open + "%00closed", crown + "%20", "%20" + crown, crown + "%09", crown + "%0d%0aA:%20b", "/api%00/v1/secrets",
		},
		"other spellings": {
			"/API/v1/secrets", "/api/V1/secrets", "/api/v1/Secrets", "/api/v1/namespaces/VAULT/secrets/crown", "/api/v1/secret", "/api/v1/namespaces/vault/secret/crown",
			"/api/v1/namespaces/vault/secrets/crow%6e", "/%61pi/v1/namespaces/vault/secrets/crown", "/api/v1/namespaces/vaul%74/%73ecrets/crown",
			"/api/v1/namespaces/va\u00fclt/secrets/crown", "/api/v1/namespaces/%ef%bd%96ault/secrets/crown", "/api/v1/namespaces/vault/secrets/%c0%ae%c0%ae/crown",
		},
		"whole URL": {
			"https://127.0.0.1/api/v1/namespaces/vault/secrets/crown", "http://loopback/api/v1/namespaces/vault/secrets/crown", "https://a/version/../api/v1/secrets",
		},
		"name in the query": {
			tenant + "/configmaps?fieldSelector=metadata.name%3Dclosed", tenant + "/configmaps/open/../closed?name=open", tenant + "/configmaps/closed?namespace=tenant&name=open",
			vault + "/secrets?fieldSelector=metadata.name%3Dopen", tenant + "/configmaps?resourceVersion=0&limit=1",
		},
		"sub-resource that is none": {
			open + "/status", open + "/proxy/../../closed", open + "/token", open + "/log", crown + "/data", vault + "/finalize", vault + "/status", "/api/v1/proxy/namespaces/vault/secrets/crown",
			"/api/v1/redirect/namespaces/vault/secrets/crown", "/api/v1/watch/namespaces/vault/secrets/crown", "/api/v1/watch/secrets", "/api/v1/watch/namespaces/tenant/configmaps/closed",
		},
	} {
		all[name] = attempt{reason: "the path that is authorized is the one that is served", try: func(t *testing.T, w *world) {
			for _, p := range paths {
				for _, as := range []string{"reader", "stranger", ""} {
					w.refused(t, as, p)
				}
			}
		}}
	}
	all["redirect elsewhere"] = attempt{reason: "a path is never turned into the host of a redirect", try: func(t *testing.T, w *world) {
		for _, p := range []string{"//evil.example.com/..", "//evil.example.com/%2e%2e", `/\evil.example.com/..`, "/version//evil.example.com", "/healthz?next=//evil.example.com"} {
			for _, a := range w.raw(t, line("stranger", "GET", p)) {
				if l := a.header.Get("Location"); l != "" {
					t.Errorf("%s: redirects to %s", p, l)
				}
			}
		}
	}}
	return all
}

// line is a request as it is written, after which the connection is closed.
func line(as, method, path string, headers ...string) string {
	s := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", method, path)
	if as != "" {
		s += "Authorization: Bearer " + tokenOf(as) + "\r\n"
	}
	for _, h := range headers {
		s += h + "\r\n"
	}
	return s + "\r\n"
}

// refused sends a path that must not be answered.
func (w *world) refused(t *testing.T, as, path string) {
	t.Helper()
	got := w.raw(t, line(as, "GET", path))
	if len(got) != 1 {
		t.Errorf("%s as %q: %d answers", path, as, len(got))
		return
	}
	a := got[0]
	if a.code < 400 || a.code >= 500 || as == "" && a.code != http.StatusUnauthorized && a.code != http.StatusBadRequest {
		t.Errorf("%s as %q: %d %s", path, as, a.code, short(a.body))
	}
	if as != "reader" && a.code == http.StatusNotFound && strings.Contains(a.body, `"details":{"name":"crown"`) {
		t.Errorf("%s as %q tells that there is no such object: %s", path, as, a.body)
	}
}

// TestVerbs: what a request does is what its method and path say.
func TestVerbs(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), verbAttempts())
}

func verbAttempts() map[string]attempt {
	all := map[string]attempt{
		"method override headers": {reason: "a GET stays a GET", try: func(t *testing.T, w *world) {
			for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-Method"} {
				w.must(t, request{as: "reader", method: "GET", path: open, header: map[string]string{name: "DELETE"}}, http.StatusOK)
				w.must(t, request{as: "reader", method: "POST", path: open, header: map[string]string{name: "GET"}, body: "{}"}, http.StatusForbidden)
			}
			w.must(t, request{method: "GET", path: open}, http.StatusOK)
		}},
		"_method": {reason: "a query and a form are no method", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "reader", method: "GET", path: open + "?_method=DELETE&method=DELETE&verb=delete"}, http.StatusOK)
			a := w.send(t, request{as: "reader", method: "POST", path: open, contentType: "application/x-www-form-urlencoded", body: "_method=DELETE"})
			if a.code < 400 {
				t.Errorf("%d %s", a.code, a.body)
			}
			w.must(t, request{method: "GET", path: open}, http.StatusOK)
		}},
		"methods in other cases": {reason: "methods are compared as they are", try: func(t *testing.T, w *world) {
			for _, m := range []string{"get", "Get", "delete", "GETX", "FOO", "TRACE", "LOCK", "SEARCH", "M-SEARCH"} {
				for _, p := range []string{crown, open, vault + "/secrets"} {
					if a := w.raw(t, line("reader", m, p)); len(a) != 1 || a[0].code < 400 || a[0].code >= 500 {
						t.Errorf("%s %s: %+v", m, p, a)
					}
				}
			}
		}},
		"CONNECT": {reason: "the server is no proxy", try: func(t *testing.T, w *world) {
			for _, target := range []string{w.address, "169.254.169.254:80", crown} {
				if a := w.raw(t, line("stranger", "CONNECT", target)); len(a) != 1 || a[0].code < 400 {
					t.Errorf("%s: %+v", target, a)
				}
			}
		}},
		"OPTIONS": {reason: "it tells nothing, and no other origin is let in", try: func(t *testing.T, w *world) {
			for _, target := range []string{"*", crown} {
				for _, a := range w.raw(t, line("stranger", "OPTIONS", target, "Origin: https://evil.example.com", "Access-Control-Request-Method: GET")) {
					if a.body != "" && a.code < 400 || a.header.Get("Access-Control-Allow-Origin") != "" {
						t.Errorf("%s: %+v", target, a)
					}
				}
			}
		}},
	}
	for name, r := range map[string]request{
		"list instead of get":         {method: "GET", path: tenant + "/configmaps"},
		"list of all namespaces":      {method: "GET", path: "/api/v1/configmaps"},
		"HEAD of a list":              {method: "HEAD", path: tenant + "/configmaps"},
		"HEAD of an object":           {method: "HEAD", path: crown},
		"watch instead of get":        {method: "GET", path: tenant + "/configmaps?watch=true&fieldSelector=metadata.name%3Dopen"},
		"watch as another word":       {method: "GET", path: tenant + "/configmaps?watch=1"},
		"watch by path":               {method: "GET", path: "/api/v1/watch/namespaces/tenant/configmaps/open"},
		"list as a table":             {method: "GET", path: tenant + "/configmaps", header: map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}},
		"other object as metadata":    {method: "GET", path: tenant + "/configmaps/closed", header: map[string]string{"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}},
		"delete":                      {method: "DELETE", path: open},
		"delete the collection":       {method: "DELETE", path: tenant + "/configmaps?fieldSelector=metadata.name%3Dopen"},
		"apply to create":             {method: "PATCH", path: tenant + "/configmaps/new?fieldManager=a&force=true", contentType: "application/apply-patch+yaml", body: "{apiVersion: v1, kind: ConfigMap}"},
		"patch":                       {method: "PATCH", path: open, contentType: "application/merge-patch+json", body: `{"data":{"a":"b"}}`},
		"dry run":                     {method: "POST", path: tenant + "/configmaps?dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`},
		"dry run of a delete":         {method: "DELETE", path: crown + "?dryRun=All"},
		"body instead of a path":      {method: "POST", path: tenant + "/configmaps", body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"vault"}}`},
		"delete by body":              {method: "GET", path: open, body: `{"kind":"DeleteOptions","apiVersion":"v1"}`},
		"upgrade to another protocol": {method: "GET", path: crown, header: map[string]string{"X-Stream-Protocol-Version": "v4.channel.k8s.io"}},
	} {
		a := attempt{reason: "the right to get one object is no other right", request: r, code: http.StatusForbidden}
		if a.as = "reader"; name == "delete by body" {
			a.code = http.StatusOK // it is a GET, and is the object's
		}
		all[name] = a
	}
	return all
}
