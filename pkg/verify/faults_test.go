package verify_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/verify"
)

// fault is what a server does wrong: with what it is asked, or with its answer.
type fault struct {
	ask    func(r *http.Request)
	answer func(r *http.Request, a *http.Response, body map[string]any) (code int)
}

// drop has the server ignore a parameter of requests with a method.
func drop(method, parameter string) fault {
	return fault{ask: func(r *http.Request) {
		if q := r.URL.Query(); r.Method == method && q.Has(parameter) {
			q.Del(parameter)
			r.URL.RawQuery = q.Encode()
		}
	}}
}

// dropOf does so for watches, or for lists.
func dropOf(watches bool, parameter string) fault {
	d := drop(http.MethodGet, parameter)
	return fault{ask: func(r *http.Request) {
		if r.URL.Query().Has("watch") == watches {
			d.ask(r)
		}
	}}
}

// accepts has the server take a form of answers for JSON.
func accepts(part string) fault {
	return fault{ask: func(r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), part) {
			r.Header.Set("Accept", "application/json")
		}
	}}
}

// without has the server ignore a field of the metadata, or of the options, that it is sent.
func without(method string, path ...string) fault {
	return fault{ask: func(r *http.Request) {
		if r.Method != method || r.Body == nil {
			return
		}
		content, _ := io.ReadAll(r.Body)
		body := map[string]any{}
		if json.Unmarshal(content, &body) == nil {
			at := body
			for _, p := range path[:len(path)-1] {
				at, _ = at[p].(map[string]any)
			}
			delete(at, path[len(path)-1])
			content, _ = json.Marshal(body)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	}}
}

// tells changes an answer.
func tells(method, path string, change func(body map[string]any)) fault {
	return fault{answer: func(r *http.Request, _ *http.Response, body map[string]any) int {
		if r.Method == method && (r.URL.Path == path || strings.HasSuffix(path, "*") && strings.HasPrefix(r.URL.Path, strings.TrimSuffix(path, "*"))) {
			change(body)
		}
		return 0
	}}
}

// codes changes the code of answers.
func codes(method string, from, to int) fault {
	return fault{answer: func(r *http.Request, a *http.Response, _ map[string]any) int {
		if r.Method == method && a.StatusCode == from {
			return to
		}
		return 0
	}}
}

// only has answers for paths with a word have a code.
func only(word string, code int) func(*http.Request, *http.Response, map[string]any) int {
	return func(r *http.Request, _ *http.Response, _ map[string]any) int {
		if strings.Contains(r.URL.Path, word) {
			return code
		}
		return 0
	}
}

// blind has watches with a parameter, or without, see nothing.
func blind(parameter string, has bool) fault {
	return fault{ask: func(r *http.Request) {
		if q := r.URL.Query(); q.Has("watch") && q.Has(parameter) == has {
			q.Set("labelSelector", "verify=nobody")
			q.Del(parameter) // or the server may refuse it
			r.URL.RawQuery = q.Encode()
		}
	}}
}

// header changes a header of answers.
func header(path, name string) fault {
	return fault{answer: func(r *http.Request, a *http.Response, _ map[string]any) int {
		if strings.HasPrefix(r.URL.Path, path) {
			a.Header.Del(name)
		}
		return 0
	}}
}

func first(list any) map[string]any {
	all, _ := list.([]any)
	if len(all) == 0 {
		return map[string]any{}
	}
	one, _ := all[0].(map[string]any)
	return one
}

func metadata(body map[string]any) map[string]any {
	m, _ := body["metadata"].(map[string]any)
	return m
}

// faults are by the ID of the check that finds them.
func faults() map[string]fault {
	const configMaps = "/api/v1/namespaces/*"
	return map[string]fault{
		"discovery-groups": tells("GET", "/apis", func(b map[string]any) {
			first(b["groups"])["preferredVersion"] = map[string]any{"groupVersion": "a/v9"}
		}),
		"discovery-group":      tells("GET", "/apis/coordination.k8s.io", func(b map[string]any) { b["versions"] = []any{} }),
		"discovery-resources":  tells("GET", "/apis/coordination.k8s.io/v1", func(b map[string]any) { b["groupVersion"] = "coordination.k8s.io/v2" }),
		"discovery-aggregated": tells("GET", "/apis", func(b map[string]any) { first(first(b["items"])["versions"])["resources"] = []any{} }),
		"discovery-etag":       {ask: func(r *http.Request) { r.Header.Del("If-None-Match") }},
		"openapi-v3-index": tells("GET", "/openapi/v3", func(b map[string]any) {
			paths, _ := b["paths"].(map[string]any)
			delete(paths, "apis/coordination.k8s.io/v1")
		}),
		"openapi-v3-kinds":   tells("GET", "/openapi/v3/*", func(b map[string]any) { b["components"] = map[string]any{} }),
		"openapi-v3-hash":    header("/openapi/v3", "Cache-Control"),
		"openapi-v2-paths":   tells("GET", "/openapi/v2", func(b map[string]any) { b["paths"] = map[string]any{} }),
		"version":            tells("GET", "/version", func(b map[string]any) { delete(b, "gitVersion") }),
		"health":             {answer: only("/readyz", 500)},
		"error-unknown-path": {answer: only("nobody", 200)},
		"error-method":       codes("DELETE", 405, 200),

		"create":                 tells("POST", configMaps, func(b map[string]any) { delete(metadata(b), "uid") }),
		"version-integer":        tells("POST", configMaps, func(b map[string]any) { metadata(b)["resourceVersion"] = "a" }),
		"get":                    tells("GET", configMaps, func(b map[string]any) { delete(metadata(b), "labels") }),
		"create-exists":          codes("POST", 409, 201),
		"create-generated-name":  tells("POST", configMaps, func(b map[string]any) { metadata(b)["name"] = "x" }),
		"create-other-namespace": without("POST", "metadata", "namespace"),
		"create-bad-name":        codes("POST", 422, 400),
		"get-absent":             tells("GET", configMaps, func(b map[string]any) { delete(b, "details") }),
		"update":                 tells("PUT", configMaps, func(b map[string]any) { metadata(b)["uid"] = "another" }),
		"update-same":            tells("PUT", configMaps, func(b map[string]any) { metadata(b)["resourceVersion"] = "999999" }),
		"update-stale":           without("PUT", "metadata", "resourceVersion"),
		"update-other-uid":       without("PUT", "metadata", "uid"),
		"update-other-name":      codes("PUT", 400, 200),
		"patch-merge":            without("PATCH", "metadata", "annotations"),
		"patch-json":             tells("PATCH", configMaps, func(b map[string]any) { delete(metadata(b), "annotations") }),
		"patch-json-test":        codes("PATCH", 422, 409),
		"patch-stale":            without("PATCH", "metadata", "resourceVersion"),
		"apply":                  tells("PATCH", configMaps, func(b map[string]any) { delete(metadata(b), "managedFields") }),
		"apply-conflict": {ask: func(r *http.Request) {
			if q := r.URL.Query(); r.Method == http.MethodPatch {
				q.Set("force", "true")
				r.URL.RawQuery = q.Encode()
			}
		}},
		"dry-run-create":  drop("POST", "dryRun"),
		"dry-run-delete":  drop("DELETE", "dryRun"),
		"dry-run-unknown": drop("POST", "dryRun"),
		"delete": {answer: func(r *http.Request, a *http.Response, _ map[string]any) int {
			if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/configmaps/") && a.StatusCode == http.StatusNotFound {
				return 200
			}
			return 0
		}},
		"delete-other-uid": without("DELETE", "preconditions"),
		"delete-stale":     without("DELETE", "preconditions"),
		"finalizers":       without("POST", "metadata", "finalizers"),
		"status-apart": tells("PUT", "/apis/example.com/v1/namespaces/*", func(b map[string]any) {
			b["status"] = map[string]any{"observedGeneration": 7}
		}),
		"verb-absent": {answer: func(r *http.Request, a *http.Response, b map[string]any) int {
			if r.Method != http.MethodPatch || a.StatusCode != http.StatusMethodNotAllowed {
				return 0
			}
			b["reason"], b["code"], b["details"] = "NotFound", 404, map[string]any{"name": "absent", "kind": "apples"}
			return 404
		}},
		"body-broken":   codes("POST", 400, 500),
		"body-type":     codes("POST", 415, 400),
		"field-unknown": drop("POST", "fieldValidation"),

		"list":              tells("GET", configMaps, func(b map[string]any) { b["items"] = []any{} }),
		"list-everywhere":   tells("GET", "/api/v1/configmaps", func(b map[string]any) { b["items"] = []any{} }),
		"list-labels":       dropOf(false, "labelSelector"),
		"list-name":         dropOf(false, "fieldSelector"),
		"list-bad-selector": dropOf(false, "labelSelector"),
		"list-pages":        dropOf(false, "limit"),
		"list-bad-continue": dropOf(false, "continue"),
		"list-bad-version":  dropOf(false, "resourceVersion"),
		"list-future": {ask: func(r *http.Request) {
			drop("GET", "resourceVersion").ask(r)
			drop("GET", "resourceVersionMatch").ask(r)
		}},
		"table":             accepts("as=Table"),
		"metadata-only":     accepts("as=PartialObjectMetadataList"),
		"protobuf":          accepts("protobuf"),
		"accept-unknown":    accepts("xml"),
		"delete-collection": drop("DELETE", "labelSelector"),

		"watch-from-version": dropOf(true, "resourceVersion"),
		"watch-initial":      blind("resourceVersion", false),
		"watch-list":         dropOf(true, "allowWatchBookmarks"),
		"watch-old-version":  blind("resourceVersion", true),
		"watch-labels":       dropOf(true, "labelSelector"),
		"watch-name":         dropOf(true, "fieldSelector"),
		"watch-bad-version":  dropOf(true, "resourceVersion"),
		"watch-timeout":      dropOf(true, "timeoutSeconds"),
	}
}

// faulty hands requests to a server, and does one thing wrong.
func faulty(t *testing.T, config *rest.Config, f fault) *rest.Config {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "inner"})
			r.Out.Header.Set("Accept-Encoding", "identity")
			if f.ask != nil {
				f.ask(r.Out)
			}
		},
		ModifyResponse: func(a *http.Response) error {
			if f.answer == nil || a.Request.URL.Query().Has("watch") {
				return nil
			}
			content, err := io.ReadAll(a.Body)
			if err != nil {
				return err
			}
			body := map[string]any{}
			isObject := json.Unmarshal(content, &body) == nil
			if code := f.answer(a.Request, a, body); code != 0 {
				a.StatusCode = code
			}
			if isObject {
				if content, err = json.Marshal(body); err != nil {
					return err
				}
			}
			if a.StatusCode == http.StatusNoContent {
				content = nil
			}
			a.Body, a.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
			a.Header.Del("Content-Length")
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return &rest.Config{Host: s.URL}
}

// TestFaults: each fault is found by the check that is about it, which finds nothing without.
func TestFaults(t *testing.T) {
	t.Parallel()
	config := serve(t, parts())
	all := faults()
	if len(all) < 30 {
		t.Errorf("%d faults are tried", len(all))
	}
	for id, f := range all {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			outcome := func(config *rest.Config) (verify.Outcome, []verify.Result) {
				report, err := verify.Run(t.Context(), verify.Options{
					Config: config, Groups: []string{groupOf(id)}, Only: []string{id}, Timeout: 5 * time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case report.Count(verify.Failed) > 0:
					return verify.Failed, report.Results
				case report.Count(verify.Passed) > 0:
					return verify.Passed, report.Results
				}
				return verify.Skipped, report.Results
			}
			if got, results := outcome(faulty(t, config, fault{})); got != verify.Passed {
				t.Errorf("without the fault: %s: %v", got, results)
			}
			if got, results := outcome(faulty(t, config, f)); got != verify.Failed {
				t.Errorf("with the fault: %s: %v", got, results)
			}
		})
	}
	for _, c := range verify.Checks() {
		if _, tried := all[c.ID]; !tried {
			t.Errorf("no fault is tried for %s", c.ID)
		}
	}
}

// groupOf is the group that has the check pass: ConfigMaps have no status, and all verbs.
func groupOf(id string) string {
	switch id {
	case "status-apart":
		return "example.com"
	case "verb-absent":
		return "seen.example.com"
	}
	return "core"
}
