package documents

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// StaticConfig says what a static source is made of. The functions are called only
// when a client asks for a document.
type StaticConfig struct {
	// Key tells apart sources whose routes and Go types are the same but whose
	// Definitions, Schemes, Title or Version differ. Empty: there is no other.
	Key string
	// Title is the title in the documents. Empty: "Kubernetes".
	Title string
	// Version is the version in the documents. Empty: "unversioned".
	Version string
	// WebServices are the routes. They must not change, except for Later. Required.
	WebServices func() []*restful.WebService
	// Later are the root paths, such as "apis/apps/v1", whose routes WebServices may
	// have only after Make, each with a text that tells its routes from others at the
	// path. Empty: none.
	Later map[string]string
	// Make has the routes of such a path made. Required with Later.
	Make func(path string) error
	// Definitions has every type the routes mention. Required.
	Definitions func() (common.GetOpenAPIDefinitions, error)
	// Schemes know the kinds of the types. Empty: no kinds in the documents,
	// which kubectl explain needs.
	Schemes func() ([]*runtime.Scheme, error)
}

// Static is a source of go-restful web services: one document per root path,
// as the stock server groups them. Its documents are Shared.
func Static(config StaticConfig) openapi.Source {
	s := &static{config: config}
	s.documents = sync.OnceValue(s.list)
	return s
}

type static struct {
	config    StaticConfig
	documents func() []openapi.Document
}

// Documents implements Source.
func (s *static) Documents(context.Context) ([]openapi.Document, error) { return s.documents(), nil }

// V2 implements Source.
func (s *static) V2(context.Context) (openapi.Swagger, error) {
	documents := s.documents()
	if len(documents) == 0 {
		return openapi.Swagger{}, nil
	}
	words := make([]string, 0, 2*len(documents))
	for _, d := range documents {
		words = append(words, d.Path, d.Tag)
	}
	return openapi.Swagger{Tag: openapi.Digest(words...), Shared: true, Build: func(context.Context) (*spec.Swagger, error) {
		return s.buildV2()
	}}, nil
}

func (s *static) list() []openapi.Document {
	digests := map[string]string{} // of the routes, by path
	maps.Copy(digests, s.config.Later)
	for path, services := range s.grouped() {
		if _, later := digests[path]; !later {
			digests[path] = routesDigest(services)
		}
	}
	documents := make([]openapi.Document, 0, len(digests))
	for path, routes := range digests {
		documents = append(documents, openapi.Document{
			Path:   path,
			Tag:    openapi.Digest(s.config.Key, s.config.Title, s.config.Version, routes),
			Shared: true,
			Build: func(context.Context) (*spec3.OpenAPI, error) {
				if _, later := s.config.Later[path]; later {
					if err := s.config.Make(path); err != nil {
						return nil, err
					}
				}
				return s.buildV3(path, s.grouped()[path])
			},
		})
	}
	slices.SortFunc(documents, func(a, b openapi.Document) int { return cmp.Compare(a.Path, b.Path) })
	return documents
}

// grouped returns the present web services by their root paths.
func (s *static) grouped() map[string][]*restful.WebService {
	grouped := map[string][]*restful.WebService{}
	for _, ws := range s.config.WebServices() {
		path := strings.Trim(ws.RootPath(), "/")
		grouped[path] = append(grouped[path], ws)
	}
	return grouped
}

// routesDigest covers what decides a document besides its definitions: the paths of
// the routes, their names and their Go types.
func routesDigest(services []*restful.WebService) string {
	var words []string
	for _, ws := range services {
		for _, r := range ws.Routes() {
			words = append(words, r.Method, r.Path, r.Operation, r.Doc, typeName(r.ReadSample), typeName(r.WriteSample))
			words = append(words, r.Consumes...)
			words = append(words, r.Produces...)
			for _, p := range r.ParameterDocs {
				words = append(words, p.Data().Name)
			}
		}
	}
	return openapi.Digest(words...)
}

func typeName(sample any) string {
	t := reflect.TypeOf(sample)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return ""
	}
	return t.PkgPath() + "." + t.Name()
}

// inputs returns the definitions and their namer.
func (s *static) inputs() (common.GetOpenAPIDefinitions, func(string) (string, spec.Extensions), error) {
	definitions, err := s.config.Definitions()
	if err != nil {
		return nil, nil, fmt.Errorf("OpenAPI definitions: %w", err)
	}
	if definitions == nil {
		return nil, nil, fmt.Errorf("OpenAPI definitions are missing: set Definitions")
	}
	var schemes []*runtime.Scheme
	if s.config.Schemes != nil {
		if schemes, err = s.config.Schemes(); err != nil {
			return nil, nil, fmt.Errorf("schemes: %w", err)
		}
	}
	namer, err := Namer(schemes...)
	if err != nil {
		return nil, nil, err
	}
	return isolated(definitions), namer, nil
}

func (s *static) info() *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{
		Title:   cmp.Or(s.config.Title, "Kubernetes"),
		Version: cmp.Or(s.config.Version, "unversioned"),
	}}
}

func (s *static) buildV3(path string, services []*restful.WebService) (*spec3.OpenAPI, error) {
	definitions, namer, err := s.inputs()
	if err != nil {
		return nil, err
	}
	doc, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(services), &common.OpenAPIV3Config{
		Info: s.info(),
		DefaultResponse: &spec3.Response{
			ResponseProps: spec3.ResponseProps{Description: "Default Response."},
		},
		GetOperationIDAndTags: apiopenapi.GetOperationIDAndTags, //nolint:staticcheck // the published function takes a restful.Route
		GetDefinitionName:     namer,
		GetDefinitions:        definitions,
	})
	if err != nil {
		return nil, err
	}
	narrowMetaKinds(doc, path)
	return doc, nil
}

func (s *static) buildV2() (*spec.Swagger, error) {
	for path := range s.config.Later {
		if err := s.config.Make(path); err != nil {
			return nil, err
		}
	}
	definitions, namer, err := s.inputs()
	if err != nil {
		return nil, err
	}
	doc, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(s.config.WebServices()), &common.Config{
		ProtocolList: []string{"https"},
		Info:         s.info(),
		DefaultResponse: &spec.Response{
			ResponseProps: spec.ResponseProps{Description: "Default Response."},
		},
		GetOperationIDAndTags: apiopenapi.GetOperationIDAndTags, //nolint:staticcheck // the published function takes a restful.Route
		GetDefinitionName:     namer,
		GetDefinitions:        definitions,
	})
	if err != nil {
		return nil, err
	}
	// As the stock server: old kubectl versions trip over defaults in v2.
	doc.Definitions = handler.PruneDefaults(doc.Definitions)
	return doc, nil
}
