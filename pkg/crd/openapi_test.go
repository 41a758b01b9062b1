package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	stockv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	stockv3 "k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// openAPIWidgets is an established CRD.
func openAPIWidgets(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "u1", Generation: 1},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"size": {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("3")}},
						}},
					},
				}},
			}},
		},
	}
	openAPIEstablish(crd)
	if change != nil {
		change(crd)
	}
	return crd
}

func openAPIEstablish(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
	}
}

func openAPIRename(crd *apiextensionsv1.CustomResourceDefinition, plural, kind string) {
	crd.Name, crd.UID = plural+"."+crd.Spec.Group, types.UID(plural)
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"}
}

// openAPIVariety has every kind of CRD the builder treats in its own way.
func openAPIVariety() []*apiextensionsv1.CustomResourceDefinition {
	yes := true
	return []*apiextensionsv1.CustomResourceDefinition{
		openAPIWidgets(nil),
		openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) {
			openAPIRename(c, "gadgets", "Gadget")
			c.Spec.Scope = apiextensionsv1.ClusterScoped
			v1 := &c.Spec.Versions[0]
			v1.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.size"}}
			v1.Subresources = &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.size", StatusReplicasPath: ".status.size"},
			}
			beta, old := *v1.DeepCopy(), *v1.DeepCopy()
			beta.Name, beta.Storage = "v1beta1", false
			old.Name, old.Storage, old.Served = "v1alpha1", false, false
			c.Spec.Versions = append(c.Spec.Versions, beta, old)
		}),
		openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) {
			openAPIRename(c, "opens", "Open")
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = &yes
		}),
		openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) {
			openAPIRename(c, "legacies", "Legacy")
			c.Spec.PreserveUnknownFields = true
		}),
		openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) {
			openAPIRename(c, "loose", "Loose") // not structural: a property without a type
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{}
		}),
		openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) {
			openAPIRename(c, "bare", "Bare")
			c.Spec.Versions[0].Schema = nil
		}),
		openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) {
			openAPIRename(c, "news", "New")
			c.Status.Conditions = nil // not established
		}),
	}
}

// openAPIGateway reads the CRDs of the Gateway API.
func openAPIGateway(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleDir(t, "sigs.k8s.io/gateway-api"), "config", "crd", "standard", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in the Gateway API: %v", err)
	}
	byName := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range bytes.Split(data, []byte("\n---\n")) {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if yaml.Unmarshal(part, crd) != nil || crd.Kind != "CustomResourceDefinition" {
				continue
			}
			crd.UID, crd.Generation = types.UID(crd.Name), 1
			apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			openAPIEstablish(crd)
			byName[crd.Name] = crd
		}
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range byName {
		crds = append(crds, crd)
	}
	return crds
}

func newOpenAPIIndexer(t testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) cache.Indexer {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, crd := range crds {
		if err := indexer.Add(crd); err != nil {
			t.Fatal(err)
		}
	}
	return indexer
}

func newOpenAPIHandler(sources ...openapi.Source) http.Handler {
	m := mux.NewPathRecorderMux("test")
	documents.NewService(nil, func() []openapi.Source { return sources }).Install(m)
	return m
}

func openAPICRDHandler(t testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) http.Handler {
	return newOpenAPIHandler(newOpenAPISource(listers.NewCustomResourceDefinitionLister(newOpenAPIIndexer(t, crds...))))
}

func getOpenAPI(t testing.TB, h http.Handler, path string) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	var content map[string]any
	if w.Code == http.StatusOK && w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &content); err != nil {
			t.Fatalf("GET %s: %v", path, err)
		}
	}
	return w.Code, content
}

func openAPIIndex(t testing.TB, h http.Handler) map[string]any {
	t.Helper()
	_, content := getOpenAPI(t, h, "/openapi/v3")
	paths, _ := content["paths"].(map[string]any)
	return paths
}

// openAPIStaticV2 is a source that has only an OpenAPI v2 document.
type openAPIStaticV2 struct{ doc *spec.Swagger }

func (openAPIStaticV2) Documents(context.Context) ([]openapi.Document, error) { return nil, nil }
func (s openAPIStaticV2) V2(context.Context) (openapi.Swagger, error) {
	return openapi.Swagger{Tag: "1", Build: func(context.Context) (*spec.Swagger, error) { return s.doc, nil }}, nil
}

func newOpenAPIStaticV2() *spec.Swagger {
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "static", Version: "v1"}},
		Paths: &spec.Paths{Paths: map[string]spec.PathItem{"/version": {}}},
	}}
}

// runStockOpenAPI serves what the stock controllers make of the CRDs.
func runStockOpenAPI(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition) http.Handler {
	t.Helper()
	client := fake.NewClientset()
	factory := externalversions.NewSharedInformerFactory(client, 0)
	informer := factory.Apiextensions().V1().CustomResourceDefinitions()
	for _, crd := range crds {
		if err := client.Tracker().Add(crd); err != nil {
			t.Fatal(err)
		}
	}
	m := mux.NewPathRecorderMux("stock")
	v2 := handler.NewOpenAPIService(newOpenAPIStaticV2())
	v2.RegisterOpenAPIVersionedService("/openapi/v2", m)
	v3 := handler3.NewOpenAPIService()
	if err := v3.RegisterOpenAPIV3VersionedService("/openapi/v3", m); err != nil {
		t.Fatal(err)
	}
	c2, c3 := stockv2.NewController(informer), stockv3.NewController(informer)
	stop, done := make(chan struct{}), make(chan struct{})
	factory.Start(stop)
	go func() {
		defer close(done)
		c2.Run(newOpenAPIStaticV2(), v2, stop)
	}()
	done3 := make(chan struct{})
	go func() {
		defer close(done3)
		c3.Run(v3, stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		<-done3
		factory.Shutdown()
	})
	return m
}

// eventuallyEqual polls a stock controller, which says nothing when it is ready.
func eventuallyEqual(t *testing.T, what string, check func() string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		diff := check()
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s (-stock +ours):\n%s", what, diff)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func testOpenAPIEqualsStock(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition) {
	stock := runStockOpenAPI(t, crds)
	source := newOpenAPISource(listers.NewCustomResourceDefinitionLister(newOpenAPIIndexer(t, crds...)))
	ours := newOpenAPIHandler(openAPIStaticV2{newOpenAPIStaticV2()}, source)
	paths := openAPIIndex(t, ours)
	if len(paths) == 0 {
		t.Fatal("no documents")
	}
	eventuallyEqual(t, "index", func() string {
		return cmp.Diff(openAPIPaths(openAPIIndex(t, stock)), openAPIPaths(paths))
	})
	for _, path := range append(openAPIPaths(paths), "v2") {
		url := "/openapi/v3/" + path
		if path == "v2" {
			url = "/openapi/v2"
		}
		code, got := getOpenAPI(t, ours, url)
		if code != http.StatusOK {
			t.Fatalf("%s: %d", url, code)
		}
		eventuallyEqual(t, url, func() string {
			_, want := getOpenAPI(t, stock, url)
			return cmp.Diff(want, got)
		})
	}
}

func openAPIPaths(m map[string]any) []string {
	var sorted []string
	for k := range m {
		sorted = append(sorted, k)
	}
	slices.Sort(sorted)
	return sorted
}

func TestOpenAPIEqualsStock(t *testing.T) {
	t.Parallel()
	t.Run("variety", func(t *testing.T) { testOpenAPIEqualsStock(t, openAPIVariety()) })
	t.Run("gateway-api", func(t *testing.T) { testOpenAPIEqualsStock(t, openAPIGateway(t)) })
}

func TestOpenAPIFollowsCRDs(t *testing.T) {
	t.Parallel()
	indexer := newOpenAPIIndexer(t)
	h := newOpenAPIHandler(newOpenAPISource(listers.NewCustomResourceDefinitionLister(indexer)))
	if paths := openAPIIndex(t, h); len(paths) != 0 {
		t.Errorf("without CRDs the index has %v", paths)
	}
	seen := map[string]string{}
	step := func(reason string, crds ...*apiextensionsv1.CustomResourceDefinition) {
		t.Helper()
		items := make([]any, 0, len(crds))
		for _, crd := range crds {
			items = append(items, crd)
		}
		if err := indexer.Replace(items, ""); err != nil {
			t.Fatal(err)
		}
		url := fmt.Sprint(openAPIIndex(t, h)["apis/example.com/v1"])
		if other, found := seen[url]; found {
			t.Errorf("%s: the tag is the one of %s", reason, other)
		}
		seen[url] = reason
	}
	second := openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) { openAPIRename(c, "gadgets", "Gadget") })
	step("a CRD", openAPIWidgets(nil))
	_, doc := getOpenAPI(t, h, "/openapi/v3/apis/example.com/v1")
	step("a second one", openAPIWidgets(nil), second)
	_, doc2 := getOpenAPI(t, h, "/openapi/v3/apis/example.com/v1")
	if a, b := len(doc["paths"].(map[string]any)), len(doc2["paths"].(map[string]any)); b != 2*a {
		t.Errorf("one CRD has %d paths, two have %d", a, b)
	}
	step("a new generation", openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) { c.Generation = 2 }))
	step("created again", openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) { c.UID = "u2" }))
	step("not established", openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.Conditions = nil }))
	if code, _ := getOpenAPI(t, h, "/openapi/v3/apis/example.com/v1"); code != http.StatusNotFound {
		t.Errorf("the document of a CRD that is not served: %d, want 404", code)
	}
}

// A CRD in the group version of a built-in resource.
func TestOpenAPIMergesWithStatic(t *testing.T) {
	t.Parallel()
	ws := new(restful.WebService)
	ws.Path("/apis/example.com/v1")
	ws.Route(ws.GET("/fixtures").To(func(*restful.Request, *restful.Response) {}).
		Operation("listFixtures").Produces("application/json").Writes(metav1.Status{}).Returns(200, "OK", metav1.Status{}))
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	static := documents.Static(documents.StaticConfig{
		WebServices: func() []*restful.WebService { return []*restful.WebService{ws} },
		Definitions: func() (common.GetOpenAPIDefinitions, error) { return generatedopenapi.GetOpenAPIDefinitions, nil },
		Schemes:     func() ([]*runtime.Scheme, error) { return []*runtime.Scheme{scheme}, nil },
	})
	lister := listers.NewCustomResourceDefinitionLister(newOpenAPIIndexer(t, openAPIWidgets(nil)))
	h := newOpenAPIHandler(static, newOpenAPISource(lister))
	for _, url := range []string{"/openapi/v3/apis/example.com/v1", "/openapi/v2"} {
		_, doc := getOpenAPI(t, h, url)
		paths, _ := doc["paths"].(map[string]any)
		for _, path := range []string{"/apis/example.com/v1/fixtures", "/apis/example.com/v1/widgets"} {
			if _, found := paths[path]; !found {
				t.Errorf("%s lacks %s", url, path)
			}
		}
		if title := doc["info"].(map[string]any)["title"]; title != "Kubernetes" {
			t.Errorf("%s has the title %v, want the static one", url, title)
		}
	}
}

// A group version's document is merged of all its CRDs, none of which changes.
func TestOpenAPIDoesNotModifyCRDs(t *testing.T) {
	t.Parallel()
	crds, want := openAPIVariety(), openAPIVariety()
	h := openAPICRDHandler(t, crds...)
	getOpenAPI(t, h, "/openapi/v3/apis/example.com/v1")
	getOpenAPI(t, h, "/openapi/v2")
	if diff := cmp.Diff(want, crds); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func openAPIHundred() []*apiextensionsv1.CustomResourceDefinition {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for i := range 100 {
		crds = append(crds, openAPIWidgets(func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Group = fmt.Sprintf("g%d.example.com", i)
			openAPIRename(c, "widgets", "Widget")
		}))
	}
	return crds
}

func BenchmarkOpenAPI(b *testing.B) {
	crds := openAPIHundred()
	cases := map[string]string{
		"index-100-crds": "/openapi/v3",
		"one-crd":        "/openapi/v3/apis/g7.example.com/v1",
		"v2-100-crds":    "/openapi/v2",
	}
	for name, url := range cases {
		b.Run(name+"/first", func(b *testing.B) {
			for b.Loop() {
				if code := discardOpenAPI(openAPICRDHandler(b, crds...), url); code != http.StatusOK {
					b.Fatal(code)
				}
			}
		})
		b.Run(name+"/again", func(b *testing.B) {
			h := openAPICRDHandler(b, crds...)
			discardOpenAPI(h, url)
			for b.Loop() {
				discardOpenAPI(h, url)
			}
		})
	}
	b.Run("gateway-api-document/first", func(b *testing.B) {
		gateway := openAPIGateway(b)
		for b.Loop() {
			discardOpenAPI(openAPICRDHandler(b, gateway...), "/openapi/v3/apis/gateway.networking.k8s.io/v1")
		}
	})
}

func discardOpenAPI(h http.Handler, url string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	return w.Code
}
