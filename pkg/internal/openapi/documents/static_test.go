package documents_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	restful "github.com/emicklei/go-restful/v3"
	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// testGroup is an API group whose routes come from the upstream installer.
type testGroup struct {
	scheme   *runtime.Scheme
	services []*restful.WebService
}

func (g testGroup) source() openapi.Source {
	return documents.Static(documents.StaticConfig{
		Title: "test", Version: "v1.2.3",
		WebServices: func() []*restful.WebService { return g.services },
		Definitions: definitions,
		Schemes:     func() ([]*runtime.Scheme, error) { return []*runtime.Scheme{g.scheme}, nil },
	})
}

func definitions() (common.GetOpenAPIDefinitions, error) {
	return generatedopenapi.GetOpenAPIDefinitions, nil
}

type strategy struct{ rest.RESTCreateStrategy }

func (strategy) NamespaceScoped() bool { return true }

// kind is a Go type and its list.
type kind struct {
	add       func(*runtime.Scheme) error
	gv        schema.GroupVersion
	obj, list func() runtime.Object
}

func crds() kind {
	return kind{
		add: apiextensionsv1.AddToScheme, gv: apiextensionsv1.SchemeGroupVersion,
		obj:  func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} },
		list: func() runtime.Object { return &apiextensionsv1.CustomResourceDefinitionList{} },
	}
}

func autoscalers() kind {
	return kind{
		add: autoscalingv1.AddToScheme, gv: autoscalingv1.SchemeGroupVersion,
		obj:  func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
		list: func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscalerList{} },
	}
}

// newGroup installs resources of one kind in a container.
func newGroup(t testing.TB, container *restful.Container, k kind, resources ...string) testGroup {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := k.add(scheme); err != nil {
		t.Fatal(err)
	}
	storage := map[string]rest.Storage{}
	for _, name := range resources {
		storage[name] = &registry.Store{
			NewFunc: k.obj, NewListFunc: k.list,
			DefaultQualifiedResource:  schema.GroupResource{Group: k.gv.Group, Resource: name},
			SingularQualifiedResource: schema.GroupResource{Group: k.gv.Group, Resource: name},
			CreateStrategy:            strategy{},
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	before := len(container.RegisteredWebServices())
	version := &endpoints.APIGroupVersion{
		Storage: storage, Root: "/apis", GroupVersion: k.gv, MetaGroupVersion: &schema.GroupVersion{Version: "v1"},
		Serializer: codecs, ParameterCodec: runtime.NewParameterCodec(scheme),
		Typer: scheme, Creater: scheme, Convertor: scheme, ConvertabilityChecker: scheme, Defaulter: scheme, UnsafeConvertor: scheme,
		Namer: runtime.Namer(metaNamer{}), TypeConverter: managedfields.NewDeducedTypeConverter(),
		EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
	}
	if _, _, err := version.InstallREST(container); err != nil {
		t.Fatal(err)
	}
	return testGroup{scheme: scheme, services: container.RegisteredWebServices()[before:]}
}

type metaNamer struct{}

func (metaNamer) Name(runtime.Object) (string, error)      { return "", nil }
func (metaNamer) Namespace(runtime.Object) (string, error) { return "", nil }

// newServer serves sources.
func newServer(t testing.TB, cache *documents.Cache, sources ...openapi.Source) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(newHandler(cache, sources...))
	t.Cleanup(server.Close)
	return server
}

func newHandler(cache *documents.Cache, sources ...openapi.Source) http.Handler {
	m := mux.NewPathRecorderMux("test")
	documents.NewService(cache, func() []openapi.Source { return sources }).Install(m)
	return m
}

func getJSON(t testing.TB, handler http.Handler, path string) map[string]any {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	var content map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &content); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return content
}

// stockHandler serves what the stock server makes of the same routes.
func stockHandler(container *restful.Container, groups ...testGroup) http.Handler {
	var schemes []*runtime.Scheme
	for _, g := range groups {
		schemes = append(schemes, g.scheme)
	}
	namer := apiopenapi.NewDefinitionNamer(schemes...)
	v2 := genericapiserver.DefaultOpenAPIConfig(generatedopenapi.GetOpenAPIDefinitions, namer)
	v2.Info.Title, v2.Info.Version = "test", "v1.2.3"
	v3 := genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions, namer)
	v3.Info = v2.Info
	m := mux.NewPathRecorderMux("stock")
	installer := routes.OpenAPI{Config: v2, V3Config: v3}
	installer.InstallV2(container, m)
	installer.InstallV3(container, m)
	return m
}

func TestStaticEqualsStock(t *testing.T) {
	t.Parallel()
	container := restful.NewContainer()
	a := newGroup(t, container, crds(), "customresourcedefinitions")
	b := newGroup(t, container, autoscalers(), "horizontalpodautoscalers")
	stock := stockHandler(container, a, b)
	ours := newHandler(nil, a.source(), b.source())

	for _, path := range []string{
		"/openapi/v3/apis/apiextensions.k8s.io/v1",
		"/openapi/v3/apis/autoscaling/v1",
		"/openapi/v2", // one document of two sources
	} {
		want := getJSON(t, stock, path)
		if len(want["paths"].(map[string]any)) < 5 {
			t.Fatalf("%s: the stock document has too few paths to compare", path)
		}
		if diff := cmp.Diff(want, getJSON(t, ours, path)); diff != "" {
			t.Errorf("%s (-stock +ours):\n%s", path, diff)
		}
	}
}

func TestStaticTags(t *testing.T) {
	t.Parallel()
	tagOf := func(key, title string, k kind, resources ...string) string {
		g := newGroup(t, restful.NewContainer(), k, resources...)
		documents, err := documents.Static(documents.StaticConfig{
			Key: key, Title: title, WebServices: func() []*restful.WebService { return g.services },
		}).Documents(t.Context())
		if err != nil || len(documents) != 1 {
			t.Fatalf("documents: %v, %v", documents, err)
		}
		return documents[0].Tag
	}
	base := tagOf("", "", crds(), "a")
	if again := tagOf("", "", crds(), "a"); again != base {
		t.Error("two planes with the same routes have different tags: they would not share")
	}
	for reason, other := range map[string]string{
		"another resource":    tagOf("", "", crds(), "a", "b"),
		"another key":         tagOf("k", "", crds(), "a"),
		"another title":       tagOf("", "t", crds(), "a"),
		"another Go type":     tagOf("", "", autoscalers(), "a"),
		"another name":        tagOf("", "", crds(), "b"),
		"key is not as title": tagOf("t", "", crds(), "a"),
	} {
		if other == base {
			t.Errorf("%s has the same tag", reason)
		}
	}
}

// A type the upstream namer would end the process for is an error of that
// document.
func TestStaticContainsFatalNames(t *testing.T) {
	t.Parallel()
	g := newGroup(t, restful.NewContainer(), crds(), "a")
	g.scheme.AddKnownTypeWithName(schema.GroupVersionKind{Version: "v1", Kind: "Odd"}, &unstructured.Unstructured{})
	w := httptest.NewRecorder()
	newHandler(nil, g.source()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v3/apis/apiextensions.k8s.io/v1", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("got %d %s, want 500", w.Code, w.Body)
	}
}

func BenchmarkStatic(b *testing.B) {
	// As many resources as core/v1 has.
	var resources []string
	for i := range 17 {
		resources = append(resources, fmt.Sprintf("things%d", i))
	}
	big := newGroup(b, restful.NewContainer(), crds(), resources...)
	// v2 wants operation names, and with them kinds, to be unique.
	small := newGroup(b, restful.NewContainer(), autoscalers(), "horizontalpodautoscalers")
	cases := map[string]struct {
		group testGroup
		path  string
	}{
		"index":            {big, "/openapi/v3"},
		"v3-17-resources":  {big, "/openapi/v3/apis/apiextensions.k8s.io/v1"},
		"v3-one-resource":  {small, "/openapi/v3/apis/autoscaling/v1"},
		"v2-one-resource":  {small, "/openapi/v2"},
		"proto-1-resource": {small, "/openapi/v3/apis/autoscaling/v1"},
	}
	for name, bc := range cases {
		accept := ""
		if name == "proto-1-resource" {
			accept = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
		}
		b.Run(name+"/first", func(b *testing.B) {
			for b.Loop() {
				request(b, newHandler(nil, bc.group.source()), bc.path, accept)
			}
		})
		b.Run(name+"/other-plane", func(b *testing.B) {
			shared := &documents.Cache{}
			request(b, newHandler(shared, bc.group.source()), bc.path, accept)
			for b.Loop() {
				request(b, newHandler(shared, bc.group.source()), bc.path, accept)
			}
		})
		b.Run(name+"/again", func(b *testing.B) {
			h := newHandler(nil, bc.group.source())
			request(b, h, bc.path, accept)
			for b.Loop() {
				request(b, h, bc.path, accept)
			}
		})
	}
}

// sink is a ResponseWriter that keeps no body.
type sink struct {
	header http.Header
	code   int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(code int)        { s.code = code }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

func request(b *testing.B, handler http.Handler, path, accept string) {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := &sink{header: http.Header{}, code: http.StatusOK}
	handler.ServeHTTP(w, r)
	if w.code != http.StatusOK {
		b.Fatalf("GET %s: %d", path, w.code)
	}
}
