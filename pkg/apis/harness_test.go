package apis_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	metadefinitions "github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/tied"
)

// server is one API group behind the real handlers, over a real etcd.
type server struct {
	t   *testing.T
	url string
}

// serve starts a server for the definitions in the group fruit.example.com. The first one has
// all versions.
func serve(t *testing.T, all ...*apis.Definition) *server {
	t.Helper()
	return serveFor(t, authorizerfactory.NewAlwaysAllowAuthorizer(), all...)
}

// serveFor serves with what resources ask who may do more than the request says.
func serveFor(t *testing.T, a authorizer.Authorizer, all ...*apis.Definition) *server {
	t.Helper()
	hub := fruit.GroupVersion()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, d := range all {
		must(t, d.Register(scheme, hub))
	}
	var served []schema.GroupVersion
	for _, v := range all[0].Resource(hub).Versions {
		served = append(served, schema.GroupVersion{Group: hub.Group, Version: v})
		metav1.AddToGroupVersion(scheme, served[len(served)-1])
	}
	must(t, scheme.SetVersionPriority(served...))

	factory := serializer.NewCodecFactory(scheme)
	codec, versioner, err := serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType: runtime.ContentTypeJSON, StorageSerializer: factory, StorageVersion: hub,
		MemoryVersion: schema.GroupVersion{Group: hub.Group, Version: runtime.APIVersionInternal},
	})
	must(t, err)
	backend := &store.Stores{Backend: &store.Backend{Client: startEtcd(t), Prefix: "/registry"}}
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	http := httptest.NewUnstartedServer(withFilters(container))
	url := "http://" + http.Listener.Addr().String()
	storages := controlplane.ResourceStorage{}
	life, end := context.WithCancel(context.Background())
	work := func(w controlplane.Work) { must(t, w.Start(life, nil)) }
	for _, d := range all {
		built, err := d.Resource(hub).Build(controlplane.BuildConfig{
			Scheme: scheme, Options: backend.Getter(codec, versioner), Client: &restclient.Config{Host: url}, Work: work, Authorizer: a,
			Storage: func(r schema.GroupResource) rest.Storage { return storages[hub.Version][r.Resource] },
		})
		must(t, err)
		for version, paths := range built {
			if storages[version] == nil {
				storages[version] = map[string]rest.Storage{}
			}
			maps.Copy(storages[version], paths)
		}
	}
	for _, gv := range served {
		_, _, err := apiGroupVersion(scheme, gv, factory, storages[gv.Version], typeConverter(t, scheme, all...)).InstallREST(container)
		must(t, err)
	}
	http.Start()
	t.Cleanup(func() {
		end()
		http.CloseClientConnections()
		http.Close()
		for _, paths := range storages {
			for _, s := range paths {
				s.Destroy()
			}
		}
	})
	return &server{t: t, url: url + "/apis/fruit.example.com/"}
}

func apiGroupVersion(scheme *runtime.Scheme, gv schema.GroupVersion, codecs serializer.CodecFactory, storage map[string]rest.Storage, converter managedfields.TypeConverter) *endpoints.APIGroupVersion {
	return &endpoints.APIGroupVersion{
		Root: "/apis", GroupVersion: gv, Storage: storage,
		OptionsExternalVersion: &schema.GroupVersion{Version: "v1"},
		Serializer:             codecs, ParameterCodec: runtime.NewParameterCodec(scheme),
		Typer: scheme, Creater: scheme, Convertor: scheme, ConvertabilityChecker: scheme, Defaulter: scheme,
		UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme), Namer: meta.NewAccessor(), TypeConverter: converter,
		EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
		Authorizer:                 authorizerfactory.NewAlwaysAllowAuthorizer(), Admit: admission.NewChainHandler(),
		MinRequestTimeout: time.Minute, MaxRequestBodyBytes: 1 << 20,
	}
}

func withFilters(h http.Handler) http.Handler {
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return filters.WithAuditInit(filters.WithRequestInfo(filters.WithWarningRecorder(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tied.Handler(h).ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "gardener"})))
	})), resolver))
}

func typeConverter(t *testing.T, scheme *runtime.Scheme, served ...*apis.Definition) managedfields.TypeConverter {
	t.Helper()
	var types []reflect.Type
	kinds := map[string]bool{}
	for _, d := range served {
		types = append(types, d.GoTypes()...)
		kinds[d.Kind()] = true
	}
	own, err := reflected.Build(metadefinitions.Definitions, types)
	must(t, err)
	all := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		merged := metadefinitions.Definitions(ref)
		maps.Copy(merged, own(ref))
		return merged
	}
	config := &common.OpenAPIV3Config{
		GetDefinitions:    all,
		GetDefinitionName: reflected.Namer(apiopenapi.NewDefinitionNamer(scheme).GetDefinitionName),
	}
	names := []string{"io.k8s.api.autoscaling.v1.Scale"}
	for gvk := range scheme.AllKnownTypes() {
		if kinds[gvk.Kind] && gvk.Version != runtime.APIVersionInternal {
			obj, err := scheme.New(gvk)
			must(t, err)
			names = append(names, openapiutil.GetCanonicalTypeName(obj))
		}
	}
	models, err := builder3.BuildOpenAPIDefinitionsForResources(config, names...)
	must(t, err)
	converter, err := managedfields.NewTypeConverter(models, false)
	must(t, err)
	return converter
}

// startEtcd runs etcd without a socket and returns what makes clients of it.
func startEtcd(t *testing.T) func() (*clientv3.Client, error) {
	t.Helper()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.UnsafeNoFsync = t.TempDir(), "error", true
	c.ListenClientUrls, c.ListenPeerUrls = nil, nil
	e, err := embed.StartEtcd(c)
	must(t, err)
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return func() (*clientv3.Client, error) { return v3client.New(e.Server), nil }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer is what a request got.
type answer struct {
	t        *testing.T
	code     int
	warnings []string
	body     string
	unstructured.Unstructured
}

// call sends a request to a path below the group; the content type of a patch
// is its kind: "merge-patch+json". It fails unless the answer has the code.
func (s *server) call(code int, method, path, body string, header ...string) *answer {
	s.t.Helper()
	a := s.ask(method, path, body, header...)
	if a.code != code {
		s.t.Fatalf("%s %s: got %d, want %d: %s", method, path, a.code, code, a.body)
	}
	return a
}

// ask sends a request as call does, and takes any answer.
func (s *server) ask(method, path, body string, header ...string) *answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	must(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(s.t, err)
	a := &answer{t: s.t, code: resp.StatusCode, warnings: resp.Header.Values("Warning"), body: string(data)}
	if json.Unmarshal(data, &a.Object) != nil {
		a.Object = map[string]any{}
	}
	return a
}

func (s *server) patch(code int, kind, path, body string) *answer {
	s.t.Helper()
	return s.call(code, "PATCH", path, body, "Content-Type", "application/"+kind)
}

// at is the value of a field, as JSON; "" when there is none.
func (a *answer) at(path string) string {
	a.t.Helper()
	v, ok, err := unstructured.NestedFieldNoCopy(a.Object, strings.Split(path, ".")...)
	if err != nil || !ok {
		return ""
	}
	data, err := json.Marshal(v)
	must(a.t, err)
	return string(data)
}

// has compares fields with their JSON values, given in pairs.
func (a *answer) has(reason string, pairs ...string) {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := a.at(pairs[i]); got != pairs[i+1] {
			a.t.Errorf("%s: %s is %s, not %s, in %s", reason, pairs[i], got, pairs[i+1], a.body)
		}
	}
}

// watch sends every event, as TYPE NAME, until the test ends.
func (s *server) watch(path string) <-chan string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	must(s.t, err)
	resp, err := http.DefaultClient.Do(req)
	must(s.t, err)
	events, done := make(chan string, 100), make(chan struct{})
	s.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		defer resp.Body.Close()
		decoder := json.NewDecoder(resp.Body)
		for {
			var e struct {
				Type   string
				Object struct {
					metav1.PartialObjectMetadata `json:",inline"`
					Message                      string
				}
			}
			if decoder.Decode(&e) != nil {
				return
			}
			events <- e.Type + " " + e.Object.Name + e.Object.Message // of an ERROR
		}
	}()
	return events
}

func next(t *testing.T, events <-chan string) string {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("no event in 30 s")
		return ""
	}
}
