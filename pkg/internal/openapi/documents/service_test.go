package documents_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	restful "github.com/emicklei/go-restful/v3"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// fake is a source with one document, which counts its builds.
type fake struct {
	path, tag string
	shared    bool
	builds    *atomic.Int32
	buildErr  error
	listErr   error
	owner     string // who the document's one path says it belongs to
}

func (f fake) Documents(context.Context) ([]openapi.Document, error) {
	if f.listErr != nil {
		return nil, f.listErr
	}
	return []openapi.Document{{Path: f.path, Tag: f.tag, Shared: f.shared, Build: func(context.Context) (*spec3.OpenAPI, error) {
		if f.builds != nil {
			f.builds.Add(1)
			time.Sleep(10 * time.Millisecond) // long enough for others to arrive meanwhile
		}
		return &spec3.OpenAPI{
			Version: "3.0.0",
			Info:    &spec.Info{InfoProps: spec.InfoProps{Title: f.owner, Version: "v1"}},
			Paths: &spec3.Paths{Paths: map[string]*spec3.Path{
				"/both":       {PathProps: spec3.PathProps{Description: f.owner}},
				"/" + f.owner: {PathProps: spec3.PathProps{Description: f.owner}},
			}},
		}, f.buildErr
	}}}, nil
}

func (f fake) V2(context.Context) (openapi.Swagger, error) {
	return openapi.Swagger{Tag: f.tag, Shared: f.shared, Build: func(context.Context) (*spec.Swagger, error) {
		if f.builds != nil {
			f.builds.Add(1)
		}
		return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
			Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "x", Version: "v1"}}, Paths: &spec.Paths{},
		}}, f.buildErr
	}}, f.listErr
}

func get(t testing.TB, server *httptest.Server, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// What client-go and with it kubectl read.
func TestClients(t *testing.T) {
	t.Parallel()
	container := restful.NewContainer()
	a := newGroup(t, container, crds(), "customresourcedefinitions")
	b := newGroup(t, container, autoscalers(), "horizontalpodautoscalers")
	server := newServer(t, nil, a.source(), b.source())
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}

	root := openapi3.NewRoot(client.OpenAPIV3())
	gvs, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	want := []schema.GroupVersion{{Group: "apiextensions.k8s.io", Version: "v1"}, {Group: "autoscaling", Version: "v1"}}
	if diff := cmp.Diff(want, gvs); diff != "" {
		t.Errorf("group versions (-want +got):\n%s", diff)
	}
	doc, err := root.GVSpec(want[1])
	if err != nil {
		t.Fatal(err)
	}
	// kubectl explain finds the schema by kind, apply the query parameter.
	if ext := doc.Components.Schemas["io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler"].Extensions["x-kubernetes-group-version-kind"]; ext == nil {
		t.Error("the schema has no kind")
	}
	path := doc.Paths.Paths["/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers/{name}"]
	found := false
	for _, p := range path.Patch.Parameters {
		found = found || p.Name == "fieldValidation"
	}
	if !found {
		t.Error("patch has no fieldValidation parameter")
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for _, contentType := range []string{"application/json", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"} {
		if data, err := paths["apis/autoscaling/v1"].Schema(contentType); err != nil || len(data) == 0 {
			t.Errorf("schema as %s: %d bytes, %v", contentType, len(data), err)
		}
	}

	v2, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(v2.GetDefinitions().GetAdditionalProperties()); n < 20 {
		t.Errorf("v2 has %d definitions", n)
	}
}

func TestBuildsLazilyAndOnce(t *testing.T) {
	t.Parallel()
	builds := &atomic.Int32{}
	source := fake{path: "apis/x/v1", tag: "1", shared: true, builds: builds, owner: "a"}
	cache := &documents.Cache{}
	one, two := newServer(t, cache, source), newServer(t, cache, source)

	index, _ := get(t, one, "/openapi/v3")
	if index.StatusCode != http.StatusOK || builds.Load() != 0 {
		t.Errorf("the index answered %d and built %d documents, want 200 and 0", index.StatusCode, builds.Load())
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { get(t, one, "/openapi/v3/apis/x/v1") })
		wg.Go(func() { get(t, two, "/openapi/v3/apis/x/v1") })
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("40 requests to two planes built %d times, want 1", n)
	}
	source.shared = false
	alone := newServer(t, cache, source)
	get(t, alone, "/openapi/v3/apis/x/v1")
	resp, _ := get(t, alone, "/openapi/v3/apis/x/v1")
	if n := builds.Load(); n != 2 {
		t.Errorf("a document that is not shared was built %d times, want 1", n-1)
	}
	fresh := newServer(t, &documents.Cache{}, source)
	if resp, _ := get(t, fresh, "/openapi/v3/apis/x/v1", "If-None-Match", resp.Header.Get("Etag")); resp.StatusCode != http.StatusNotModified {
		t.Errorf("a known tag answered %d, want 304", resp.StatusCode)
	}
	if n := builds.Load(); n != 2 {
		t.Errorf("304 built a document")
	}
}

func TestV2(t *testing.T) {
	t.Parallel()
	builds := &atomic.Int32{}
	server := newServer(t, nil, fake{path: "version", tag: "1", builds: builds})
	resp, _ := get(t, server, "/openapi/v2")
	resp2, _ := get(t, server, "/openapi/v2", "If-None-Match", resp.Header.Get("Etag"))
	resp3, _ := get(t, server, "/openapi/v2", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if resp.StatusCode != http.StatusOK || resp2.StatusCode != http.StatusNotModified || resp3.StatusCode != http.StatusOK {
		t.Errorf("got %d %d %d, want 200 304 200", resp.StatusCode, resp2.StatusCode, resp3.StatusCode)
	}
	if got, want := resp3.Header.Get("Content-Type"), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"; got != want {
		t.Errorf("content type %q, want %q", got, want)
	}
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times, want 1", n)
	}
	if resp, body := get(t, newServer(t, nil), "/openapi/v2"); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"swagger":"2.0"`) {
		t.Errorf("without a source: %d %s", resp.StatusCode, body)
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	server := newServer(t, nil,
		fake{path: "apis/x/v1", tag: "1", owner: "a"},
		fake{path: "apis/bad/v1", tag: "1", buildErr: errors.New("no definition of Pear"), owner: "b"},
	)
	etag, _ := get(t, server, "/openapi/v3/apis/x/v1")
	tag := strings.Trim(etag.Header.Get("Etag"), `"`)
	pb := "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"

	cases := map[string]struct {
		reason string
		path   string
		header []string
		code   int
		body   string
		want   map[string]string
	}{
		"json": {
			reason: "JSON is the default", path: "/openapi/v3/apis/x/v1", code: 200, body: `"openapi":"3.0.0"`,
			want: map[string]string{"Content-Type": "application/json", "Vary": "Accept", "Cache-Control": ""},
		},
		"protobuf": {
			reason: "the deprecated name is answered with the valid one", path: "/openapi/v3/apis/x/v1", code: 200,
			header: []string{"Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"},
			want:   map[string]string{"Content-Type": pb},
		},
		"preference": {
			reason: "the client's first choice counts", path: "/openapi/v3/apis/x/v1", code: 200,
			header: []string{"Accept", "application/json;q=0.5, " + pb + ";q=0.9"},
			want:   map[string]string{"Content-Type": pb},
		},
		"not acceptable": {reason: "no such encoding", path: "/openapi/v3/apis/x/v1", header: []string{"Accept", "text/html"}, code: 406},
		"hash": {
			reason: "a URL with the tag may be kept for good", path: "/openapi/v3/apis/x/v1?hash=" + tag, code: 200,
			want: map[string]string{"Cache-Control": "public, immutable"},
		},
		"stale hash": {
			reason: "the client is sent to the current one", path: "/openapi/v3/apis/x/v1?hash=old", code: 301,
			want: map[string]string{"Location": "?hash=" + tag, "Cache-Control": "no-store"},
		},
		"known": {
			reason: "one of several known tags", path: "/openapi/v3/apis/x/v1", code: 304,
			header: []string{"If-None-Match", `"other", W/"` + tag + `"`},
			want:   map[string]string{"Etag": `"` + tag + `"`},
		},
		"known index":  {reason: "the index has a tag too", path: "/openapi/v3", header: []string{"If-None-Match", "*"}, code: 304},
		"unknown path": {reason: "no such document", path: "/openapi/v3/apis/y/v1", code: 404, body: `there is no document "apis/y/v1"`},
		"bad document": {
			reason: "the reason is told, and nothing may be kept", path: "/openapi/v3/apis/bad/v1", code: 500, body: "no definition of Pear",
			want: map[string]string{"Cache-Control": "", "Etag": ""},
		},
		"index": {reason: "a bad document does not hide the index", path: "/openapi/v3", code: 200, body: `"apis/x/v1":{"serverRelativeURL":"/openapi/v3/apis/x/v1?hash=` + tag + `"}`},
		"v2":    {reason: "v2 is one document", path: "/openapi/v2", code: 503, body: "no definition of Pear"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			resp, body := get(t, server, tc.path, tc.header...)
			if resp.StatusCode != tc.code || !strings.Contains(body, tc.body) {
				t.Errorf("%s: got %d %q, want %d %q", tc.reason, resp.StatusCode, body, tc.code, tc.body)
			}
			for k, v := range tc.want {
				if got := resp.Header.Get(k); got != v {
					t.Errorf("%s: header %s is %q, want %q", tc.reason, k, got, v)
				}
			}
		})
	}
}

func TestFailingSource(t *testing.T) {
	t.Parallel()
	server := newServer(t, nil, fake{listErr: errors.New("remote is down")}, fake{path: "apis/x/v1", tag: "1", owner: "a"})
	for path, want := range map[string]int{
		"/openapi/v3":           http.StatusOK,
		"/openapi/v3/apis/x/v1": http.StatusOK,
		"/openapi/v3/apis/y/v1": http.StatusServiceUnavailable, // it may be the remote's
	} {
		if resp, body := get(t, server, path); resp.StatusCode != want {
			t.Errorf("%s: got %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
}

func TestMergesSamePath(t *testing.T) {
	t.Parallel()
	a, b := fake{path: "apis/x/v1", tag: "1", owner: "a"}, fake{path: "apis/x/v1", tag: "2", owner: "b"}
	paths := getJSON(t, newHandler(nil, a, b), "/openapi/v3/apis/x/v1")["paths"]
	describe := func(s string) any { return map[string]any{"description": s} }
	want := map[string]any{"/both": describe("a"), "/a": describe("a"), "/b": describe("b")}
	if diff := cmp.Diff(any(want), paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTagChange(t *testing.T) {
	t.Parallel()
	source := &fake{path: "apis/x/v1", tag: "1", owner: "a"}
	h := newHandler(nil, source)
	getJSON(t, h, "/openapi/v3/apis/x/v1")
	source.tag, source.owner = "2", "b"
	paths := getJSON(t, h, "/openapi/v3/apis/x/v1")["paths"].(map[string]any)
	if _, ok := paths["/b"]; !ok {
		t.Errorf("after a change the old document is served: %v", paths)
	}
}

// The shared cache must not keep a plane that is gone.
func TestCacheKeepsNoPlane(t *testing.T) {
	t.Parallel()
	cache := &documents.Cache{}
	plane := func() weak.Pointer[fake] {
		source := &fake{path: "apis/x/v1", tag: "1", shared: true, owner: "a"}
		h := newHandler(cache, source)
		getJSON(t, h, "/openapi/v3/apis/x/v1")
		getJSON(t, h, "/openapi/v2")
		return weak.Make(source)
	}()
	runtime.GC()
	runtime.GC()
	if plane.Value() != nil {
		t.Error("the source of a plane without references is alive")
	}
	runtime.KeepAlive(cache)
}
