package apis

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Group is an API group made of resources. It is a controlplane.Part that any
// number of planes may share: what is the same for all of them, the scheme and
// the OpenAPI definitions, is computed once, when the first plane needs it. Make
// it with [NewGroup]. Required: a version and a resource.
type Group struct {
	hub         schema.GroupVersion
	addToScheme func(*runtime.Scheme) error
	definitions common.GetOpenAPIDefinitions
	resources   []*Definition
	api         *controlplane.API
}

// NewGroup makes a group. Its preferred version, the one objects are stored in, is
// gv, to which the Go types of the resources belong; the versions that resources
// add follow in the order they are first named.
//
// addToScheme registers what the resources do not: further kinds, such as
// those of sub-resources. It may be nil, or the usual AddToScheme of an API
// package, which registers the resources' types as well.
//
// definitions are what openapi-gen generated for the types; those of meta/v1
// may be missing. Nil: they are built from the Go types by reflection, without
// what only comments say: descriptions without a SwaggerDoc method, and markers
// such as +listType.
//
// Mistakes are reported by Install.
func NewGroup(gv schema.GroupVersion, addToScheme func(*runtime.Scheme) error,
	definitions common.GetOpenAPIDefinitions, resources ...*Definition,
) *Group {
	g := &Group{hub: gv, addToScheme: addToScheme, definitions: definitions, resources: resources}
	g.api = controlplane.NewAPI(gv.Group, g.versions(), controlplane.APIConfig{
		AddToScheme: g.register,
		Definitions: g.openAPI,
		Protobuf:    !slices.ContainsFunc(resources, func(r *Definition) bool { return !r.Protobuf() }),
	})
	return g
}

// RegisterKinds registers kinds that are no resources of the group, in one version: the
// bodies of actions and sub-resources.
func RegisterKinds(gv schema.GroupVersion, objects ...runtime.Object) func(*runtime.Scheme) error {
	return func(s *runtime.Scheme) error {
		s.AddKnownTypes(gv, objects...)
		s.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, objects...)
		return nil
	}
}

// PartName is what errors call the group.
func (g *Group) PartName() string { return cmp.Or(g.hub.Group, "core") }

// API is what the group serves, the same for all planes.
func (g *Group) API() *controlplane.API { return g.api }

// GroupVersion is the hub version.
func (g *Group) GroupVersion() schema.GroupVersion { return g.hub }

// Resources are the resources of the group. Do not modify.
func (g *Group) Resources() []*Definition { return g.resources }

// Install serves the resources, or returns everything that is wrong with them.
func (g *Group) Install(plan *controlplane.Plan) error {
	if err := g.check(); err != nil {
		return err
	}
	var served []controlplane.Resource
	for _, r := range g.resources {
		served = append(served, r.Resource(g.hub))
	}
	plan.Serve(g.api, served...)
	return nil
}

// Serve adds one resource of the group to a plane, for parts that each serve one.
// Its types must be among those of the group.
func (g *Group) Serve(plan *controlplane.Plan, r *Definition) error {
	if err := r.Err(); err != nil {
		return err
	}
	plan.Serve(g.api, r.Resource(g.hub))
	return nil
}

func (g *Group) check() error {
	var errs []error
	if g.hub.Version == "" {
		errs = append(errs, errors.New("the group version has no version"))
	}
	if len(g.resources) == 0 {
		errs = append(errs, errors.New("the group has no resources"))
	}
	names, kinds := map[string]bool{}, map[string]bool{}
	for _, r := range g.resources {
		errs = append(errs, r.Err())
		if names[r.Name()] {
			errs = append(errs, fmt.Errorf("resource %q: defined twice", r.Name()))
		}
		if kinds[r.Kind()] {
			errs = append(errs, fmt.Errorf("resource %q: another resource has the kind %s", r.Name(), r.Kind()))
		}
		if slices.Contains(r.Spokes(), g.hub.Version) {
			errs = append(errs, fmt.Errorf("resource %q: version %q is already the hub", r.Name(), g.hub.Version))
		}
		names[r.Name()], kinds[r.Kind()] = true, true
	}
	return errors.Join(errs...)
}

// versions are the hub version and every spoke.
func (g *Group) versions() []string {
	versions := []string{g.hub.Version}
	for _, r := range g.resources {
		for _, v := range r.Spokes() {
			if !slices.Contains(versions, v) {
				versions = append(versions, v)
			}
		}
	}
	return versions
}

func (g *Group) register(s *runtime.Scheme) error {
	if g.addToScheme != nil {
		if err := g.addToScheme(s); err != nil {
			return err
		}
	}
	var errs []error
	for _, r := range g.resources {
		errs = append(errs, r.Register(s, g.hub))
	}
	return errors.Join(errs...)
}
