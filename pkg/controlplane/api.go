package controlplane

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	restclient "k8s.io/client-go/rest"
	openapi "k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// API is one API group: its versions, its Go types and their OpenAPI definitions.
// One API value serves any number of planes: its scheme, codecs and definitions are
// computed once, when first needed, and shared. Several parts may add resources to
// the same API value. Several API values of one group in a plane are served as one:
// all must have the same versions.
//
// Make one with NewAPI; an API must not be copied.
type API struct {
	id       string // unique in the process
	group    string
	versions []string
	config   APIConfig

	scheme      func() (*runtime.Scheme, error)
	codecs      func() (*codecs, error)
	definitions func() (openapi.GetOpenAPIDefinitions, error)
	converter   func() (managedfields.TypeConverter, error)

	discovered sync.Map        // the discovery of a version, by fingerprint
	routes     upstream.Routes // by fingerprint
	announced  sync.Map        // the handler of the group's own document, by versions

	mu    sync.Mutex
	joins map[string]weak.Pointer[API] // by the other's id
}

// APIConfig says what an API is made of.
type APIConfig struct {
	// AddToScheme registers the types of every version, the same Go types (the
	// hub version's) as internal version, and conversion and defaulting
	// functions. Required.
	AddToScheme func(*runtime.Scheme) error
	// Definitions gives the OpenAPI definitions of every type, those of
	// meta/v1 included. Required. It is called once.
	Definitions func() (openapi.GetOpenAPIDefinitions, error)
	// Protobuf says that every type of the group has protobuf methods, so that
	// objects are stored and served in that form. Empty: JSON (and CBOR), and
	// protobuf is refused with 406 or 415.
	Protobuf bool
}

// NewAPI returns the API of a group ("" is the core group, served below /api)
// with its versions in order of preference.
func NewAPI(group string, versions []string, config APIConfig) *API {
	a := &API{id: rand.Text(), group: group, versions: versions, config: config}
	a.scheme = sync.OnceValues(a.buildScheme)
	a.codecs = sync.OnceValues(a.buildCodecs)
	a.definitions = sync.OnceValues(config.Definitions)
	a.converter = sync.OnceValues(a.buildConverter)
	return a
}

// join returns an API with the types of both. All planes that join the same two
// share it; it is freed with the last of them.
func (a *API) join(other *API) *API {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.joins[other.id].Value(); j != nil {
		return j
	}
	maps.DeleteFunc(a.joins, func(_ string, j weak.Pointer[API]) bool { return j.Value() == nil })
	j := NewAPI(a.group, a.versions, APIConfig{
		AddToScheme: func(s *runtime.Scheme) error {
			return errors.Join(a.config.AddToScheme(s), other.config.AddToScheme(s))
		},
		Definitions: func() (openapi.GetOpenAPIDefinitions, error) {
			first, err := a.definitions()
			second, err2 := other.definitions()
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			return func(ref openapi.ReferenceCallback) map[string]openapi.OpenAPIDefinition {
				all := first(ref)
				maps.Copy(all, second(ref))
				return all
			}, nil
		},
		Protobuf: a.config.Protobuf,
	})
	j.id = a.id + "+" + other.id
	if a.joins == nil {
		a.joins = map[string]weak.Pointer[API]{}
	}
	a.joins[other.id] = weak.Make(j)
	return j
}

// Group is the name of the group; empty for the core group.
func (a *API) Group() string { return a.group }

// Versions are the versions in order of preference. Do not modify.
func (a *API) Versions() []string { return a.versions }

// GroupVersions are the versions in order of preference, with the group.
func (a *API) GroupVersions() []schema.GroupVersion {
	gvs := make([]schema.GroupVersion, 0, len(a.versions))
	for _, v := range a.versions {
		gvs = append(gvs, schema.GroupVersion{Group: a.group, Version: v})
	}
	return gvs
}

// Scheme is the scheme of the group's types, shared by all planes.
func (a *API) Scheme() (*runtime.Scheme, error) { return a.scheme() }

// Definitions are the OpenAPI definitions of the group's types, shared by all planes.
func (a *API) Definitions() (openapi.GetOpenAPIDefinitions, error) { return a.definitions() }

// check returns what is wrong with the API's configuration.
func (a *API) check(part string) error {
	var errs []error
	if len(a.versions) == 0 {
		errs = append(errs, fmt.Errorf("part %q: group %q has no version", part, a.group))
	} else if _, err := a.scheme(); err != nil {
		errs = append(errs, fmt.Errorf("part %q: %w", part, err))
	}
	if a.config.Definitions == nil {
		errs = append(errs, fmt.Errorf("part %q: group %q: Definitions is missing", part, a.group))
	}
	return errors.Join(errs...)
}

// root is the URL path the group's versions are served below.
func (a *API) root() string {
	if a.group == "" {
		return "/api"
	}
	return "/apis"
}

func (a *API) buildScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	if a.config.AddToScheme == nil {
		return nil, fmt.Errorf("group %q: AddToScheme is missing", a.group)
	}
	if err := a.config.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("group %q: add to scheme: %w", a.group, err)
	}
	for _, gv := range a.GroupVersions() {
		metav1.AddToGroupVersion(s, gv)
	}
	if err := s.SetVersionPriority(a.GroupVersions()...); err != nil {
		return nil, fmt.Errorf("group %q: %w", a.group, err)
	}
	return s, nil
}

// Resource is one resource of an API, for any number of planes.
type Resource struct {
	// Name is the plural lower-case name, "apples".
	Name string
	// Kind is the kind of its objects, "Apple".
	Kind string
	// Versions are those that serve the resource; the others do not list it.
	Versions []string
	// View says that another resource stores the objects: work on all stored objects
	// skips this one.
	View bool
	// Elsewhere says that the resource reads its objects from somewhere else than the plane's
	// storage: the feed does not see them, and neither does what counts or collects by it.
	Elsewhere bool
	// LongRunning are the sub-resources, "log", whose requests may last longer than a
	// minute, and upgrade their connections: streams and proxies.
	LongRunning []string
	// Consoles are those of them that take the verb create whatever the method: a WebSocket
	// begins with a GET. The storage asks for it first; while a request lasts the plane does.
	Consoles []string
	// Build makes the REST storage for one plane. Versions usually share one, which
	// keeps the hub version.
	Build func(BuildConfig) (ResourceStorage, error)
}

// ResourceStorage is the REST storage of resources: for each version, "v1", the storage
// by path, "apples" and for example "apples/status".
type ResourceStorage map[string]map[string]rest.Storage

// BuildConfig is what a plane gives a resource to build its storage with.
type BuildConfig struct {
	// Scheme holds the API's types.
	Scheme *runtime.Scheme
	// Options makes the storage of a resource in the plane's storage.
	Options generic.RESTOptionsGetter
	// Authenticator identifies a caller, and Authorizer decides what the caller may
	// do, as for the plane's own requests.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	// Audiences are the plane's: those of a token whose authenticator knows no
	// audiences. Empty: no part declares any.
	Audiences authenticator.Audiences
	// Rules lists what a user may do in a namespace. Authorizers that cannot list
	// their rules make the list incomplete.
	Rules authorizer.RuleResolver
	// Client is a configuration of clients of the plane, with all rights (see
	// [Plane.Config]). The plane answers them when it serves, not while it is built.
	Client *restclient.Config
	// Storage finds the storage of another resource of the plane's groups, nil if none of them
	// serves it. All of it is there when the plane serves, not while it is built.
	Storage func(schema.GroupResource) rest.Storage
	// Work declares what the resource does while the plane runs, as [Plan.Work] does for a part.
	Work func(Work)

	sources *sources
}
