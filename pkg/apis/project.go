package apis

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	restclient "k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/projected"
)

// Backing is the resource that a [Project] shows: one of a group of this plane, of a CRD, or of
// another server. Make it with [Over].
type Backing struct {
	groupVersion, resource string
	server                 *restclient.Config
}

// Over names a resource by its version, "catalog.example.com/v1" or "v1", and its plural name.
func Over(groupVersion, resource string) Backing {
	return Backing{groupVersion: groupVersion, resource: resource}
}

// At has the resource be one of another server, which is called with the rights of the
// configuration.
func (b Backing) At(server *restclient.Config) Backing {
	b.server = server
	return b
}

// deletesBelow leaves it to the resource below to delete what has lost its last finalizer.
func deletesBelow(s *registry.Store) {
	s.ShouldDeleteDuringUpdate = func(context.Context, string, runtime.Object, runtime.Object) bool { return false }
}

// Project defines a resource whose objects are views of those of another one: what users see of
// what an administrator edits. Nothing is stored twice.
//
//	apis.Project[catalog.Plan, catalog.PlanList]("plans", apis.Over("catalog.example.com/v1", "planspecs"),
//		func(spec *catalog.PlanSpec, plan *catalog.Plan) bool {
//			plan.Spec.Price = spec.Spec.Price
//			return spec.Spec.Public
//		}, nil)
//
// publish fills in what users see, and tells whether they see it; it must not change its first
// argument. Both are called for every object that is read and for every change: they should be
// quick and do nothing else. accept puts what a user wrote into the object below, or returns why
// it cannot: a [k8s.io/apimachinery/pkg/util/validation/field.Error] is answered with 422, another
// error with 400. A nil accept has the view be read only: get, list and watch. B is a Go type that the JSON of
// the objects below is decoded into, not necessarily with all of their fields, or
// unstructured.Unstructured.
//
// The view is [ClusterScoped] if the resource below is, and only then.
//
// Metadata is set in both directions: name, namespace, UID, times and resource version are always
// those of the object below. publish may take labels, annotations, finalizers and owner references
// away; a write changes those that the user changed, and leaves what is not shown. Likewise only
// what accept changes in a B is changed below; but a list in which accept changed something is
// replaced, with fields of its items that B lacks.
//
// The view is validated, defaulted and admitted as a stored resource is, and may have its options;
// a write to its status changes the status below. Then the resource below has its own rules: the
// server writes it with all rights, and what a caller may do is decided on the view. An error of
// the resource below is the answer to the user, with the name of the resource. A dry run does not
// get there.
//
// Server-side apply knows who has which field of the view. This is kept in the annotation
// RESOURCE.GROUP/managed-fields of the object below; its managed fields say that the view
// RESOURCE.GROUP wrote what changed there. A change of the resource below takes no fields of the
// view away from their owners.
//
// Versions, pages and continue tokens are those of the resource below. A page may be shorter than
// its limit if most objects are not shown, and a list never tells how many objects remain. A
// continue token has the name of the object that it goes on after, which may be one that is not
// shown. The first watch has the view watch all that is below, once for all its watchers, and keep
// what is shown in memory. An object that begins to be shown is ADDED, and one that ceases to be is
// DELETED. A version of before the first watch is 410 if there were changes since.
//
// A call of the resource below has 10 seconds. One that fails or is not there has clients get 503,
// and watches go on when it is back; see [Stale].
//
// To what works on stored objects the view does not exist: garbage collection, the deletion of a
// namespace and the feed see the object below. Owner references should name it, not the view; as
// both have the same UID, a reference to the view is one to the object below. What a quota counts is the object below too, when
// it is written.
func Project[T, L any, PT interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}, B any, PB interface {
	*B
	Object
}](name string, over Backing, publish func(below *B, obj *T) (shown bool), accept func(obj *T, below *B) error, options ...Option,
) *Definition {
	if accept == nil {
		options = append([]Option{Verbs("get", "list", "watch")}, options...)
	}
	d := Resource[T, L, PT, PL](name, append([]Option{Store(deletesBelow)}, options...)...)
	if publish == nil {
		d.optionErrs = append(d.optionErrs, errors.New("Project: the function that publishes objects is nil"))
	}
	gv, err := schema.ParseGroupVersion(over.groupVersion)
	if err != nil || gv.Version == "" || over.resource == "" {
		d.optionErrs = append(d.optionErrs, fmt.Errorf("Project: over %q %q: want a version and a plural name, "+
			"\"catalog.example.com/v1\" and \"planspecs\"", over.groupVersion, over.resource))
	}
	shape := shape[T, B, PB]{publish, accept}
	d.view = true
	d.kept = func(config controlplane.BuildConfig, resource schema.GroupResource) (generic.RESTOptionsGetter, error) {
		server, host := config.Client, ""
		if over.server != nil {
			server, host = over.server, cmp.Or(over.server.Host, "another server")
		}
		if server == nil {
			return nil, errors.New("Project: the plane has no client")
		}
		by := resource.String()
		below, err := projected.NewClient(server, gv.WithResource(over.resource), host, by)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", over.resource, err)
		}
		projection := projected.Projection{Below: below, Publish: shape.show}
		if over.server == nil {
			projection.Reader = &projected.Stored{Client: below, Find: func() (rest.Storage, bool) {
				return shape.stored(config.Storage(gv.WithResource(over.resource).GroupResource()))
			}}
		}
		if accept != nil {
			projection.Accept = shape.write
		}
		return projected.Options{
			RESTOptionsGetter: config.Options, Projection: projection, Kind: d.kind, ClusterScoped: d.clusterScoped,
			Report: config.Source(resource), Stale: d.stale,
			Until: func(end func()) {
				config.Work(controlplane.Work{Name: "watch " + by, Start: func(ctx context.Context, _ *controlplane.Plane) error {
					context.AfterFunc(ctx, func() {
						end()
						below.Close()
					})
					return nil
				}})
			},
		}, nil
	}
	return d
}
