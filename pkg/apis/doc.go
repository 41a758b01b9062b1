// Package apis makes API groups out of Go types, with complete Kubernetes REST
// resources.
//
//	apis.NewGroup(fruit.GroupVersion, fruit.AddToScheme, nil,
//		apis.Resource[fruit.Apple, fruit.AppleList]("apples",
//			apis.ShortNames("ap"),
//			apis.Status(),
//			apis.Default(func(a *fruit.Apple) { ... }),
//			apis.Validate(func(ctx context.Context, a *fruit.Apple) field.ErrorList { ... }),
//			apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", toHub, fromHub),
//		),
//		apis.Resource[fruit.Pear, fruit.PearList]("pears"),
//	)
//
// A [Group] is the part that serves its resources. [Resource] takes a type, its list
// type and a plural name, and gives everything that kube-apiserver gives its own types:
// create, get, list, watch, update, the four kinds of patch, delete and
// deletecollection, dry-run, managed fields, field selectors and tables for kubectl.
// Options add the rest.
//
// The types only need deepcopy-gen: without OpenAPI definitions, these are built
// from the Go types by reflection.
//
// # Versions
//
// The type given to Resource is the hub: what is stored, and what every function
// given to an option sees. Other versions are spokes, each with one function to
// the hub and one from it. A client may read and write any object in any
// version.
//
// # The life of a write
//
//	decode -> default (of the version) -> convert to the hub -> admission
//	  -> Default -> PrepareForCreate or PrepareForUpdate
//	  -> Validate, and on update ValidateUpdate -> Warn -> store
//
// Fields that a client may not set are put back, never refused, as in Kubernetes:
// a resource with a /status sub-resource ignores status in a write to the
// resource, and all but status in a write to /status.
//
// # Sub-resources that are functions
//
//	apis.Stream("log", func(ctx context.Context, a *fruit.Apple, o *LogOptions) (io.ReadCloser, error) { ... }),
//	apis.Exec("console", func(ctx context.Context, a *fruit.Apple, o *ExecOptions, s apis.Streams) error { ... }),
//	apis.Do("restart", func(ctx context.Context, a *fruit.Apple, in *Restart) (*Restarted, error) { ... }),
//
// [Stream] is read to its end, [Exec] and [Attach] have a client's terminal, [PortForward]
// connections, [Proxy] and [Handle] requests of HTTP, and [Do] a body and an answer. The
// first six may last as long as they like: their contexts end with the client, with its
// permission, and with the plane.
//
// # What it stands on
//
// The registry, the strategies and the handlers are those of k8s.io/apiserver
// ([k8s.io/apiserver/pkg/registry/generic/registry.Store]); this package holds
// only what is written by hand for each Kubernetes type.
package apis
