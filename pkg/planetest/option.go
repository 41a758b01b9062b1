package planetest

import (
	"go/token"
	"io/fs"
	"reflect"
	"strconv"
	"strings"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/endpoints"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
)

// Defaults are the parts of a plane, unless [Options] say otherwise:
// the built-in resources of Kubernetes, CRDs, APIServices, RBAC, tokens of
// service accounts, admission by webhooks and policies, deletion of namespaces,
// garbage collection, quotas and limits.
func Defaults() controlplane.Part {
	return controlplane.Parts{
		authz.RBAC{},
		serviceaccount.Tokens{},
		preset.Standard(),
		endpoints.EndpointSlices{},
		kube.All(),
		crd.Definitions{},
		aggregator.APIServices{},
	}
}

// Options say how a plane is started, beside its parts. The zero value is what
// [Start], [Main] and [CRD] use.
type Options struct {
	// NoDefaults starts the plane with the given parts only. Empty: they are added to
	// [Defaults].
	NoDefaults bool
	// Kubeconfig makes the plane also listen at a free port of 127.0.0.1, and write
	// a kubeconfig for programs outside of the process: see [Plane.Kubeconfig].
	Kubeconfig bool
	// Storage is where the plane keeps its objects. Empty: in memory.
	Storage controlplane.Storage
	// Scheme tells the plane the kinds of Go types, so that objects need no
	// apiVersion and kind. Built-in types are always known.
	Scheme *runtime.Scheme
}

// WithCRDs is a part with the CRDs of all *.yaml, *.yml and *.json files of the file
// systems, such as os.DirFS("config/crd/bases"). They add to those of
// crd.Definitions, if the plane has it; serving them needs no other part.
func WithCRDs(fsys ...fs.FS) controlplane.Part { return crds(fsys) }

type crds []fs.FS

// PartName implements the name errors use.
func (crds) PartName() string { return "planetest.WithCRDs" }

// Install declares what crd.Definitions does.
func (c crds) Install(p *controlplane.Plan) error { return crd.Definitions{FS: c.files()}.Install(p) }

// files are those of all file systems; nil when there is none.
func (c crds) files() fs.FS {
	switch len(c) {
	case 0:
		return nil
	case 1:
		return c[0]
	}
	return joined(c)
}

// parts adds the given parts to the defaults. One of the type of a default takes its
// place, and one part gets all CRDs.
func (o Options) parts(given []controlplane.Part) []controlplane.Part {
	var files crds
	var parts []controlplane.Part
	for _, p := range flatten(given) {
		if c, ok := p.(crds); ok {
			files = append(files, c...)
			continue
		}
		parts = append(parts, p)
	}
	if !o.NoDefaults {
		parts = merge(flatten([]controlplane.Part{Defaults()}), parts)
	}
	if len(files) == 0 {
		return parts
	}
	for i, p := range parts {
		if d, ok := p.(crd.Definitions); ok {
			if d.FS != nil {
				files = append(crds{d.FS}, files...)
			}
			d.FS = files.files()
			parts[i] = d
			return parts
		}
	}
	return append(parts, files)
}

// merge puts given parts into the places of defaults of their types, which must
// be exported ones, and the others behind them.
func merge(defaults, given []controlplane.Part) []controlplane.Part {
	place := map[reflect.Type]int{}
	for i, p := range defaults {
		if t := reflect.TypeOf(p); token.IsExported(t.Name()) && t.Kind() == reflect.Struct {
			place[t] = i
		}
	}
	for _, p := range given {
		if i, ok := place[reflect.TypeOf(p)]; ok {
			defaults[i] = p
			continue
		}
		defaults = append(defaults, p)
	}
	return defaults
}

func flatten(parts []controlplane.Part) []controlplane.Part {
	var flat []controlplane.Part
	for _, p := range parts {
		if several, ok := p.(controlplane.Parts); ok {
			flat = append(flat, flatten(several)...)
			continue
		}
		flat = append(flat, p)
	}
	return flat
}

// joined is one file system with the files of several, each in a directory of its own.
type joined []fs.FS

// Open implements fs.FS.
func (j joined) Open(name string) (fs.File, error) {
	if name == "." {
		top := fstest.MapFS{}
		for i := range j {
			top[strconv.Itoa(i)] = &fstest.MapFile{Mode: fs.ModeDir}
		}
		return top.Open(name)
	}
	first, rest, below := strings.Cut(name, "/")
	if !below {
		rest = "."
	}
	i, err := strconv.Atoi(first)
	if err != nil || i < 0 || i >= len(j) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return j[i].Open(rest)
}
