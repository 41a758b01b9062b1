package planetest

import (
	"errors"
	"io/fs"
	"path"
	"reflect"
	"strconv"
	"testing/fstest"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/discovery"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/kine/memory"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
)

// Defaults are the parts of a plane for which [WithoutDefaults] is not given:
// the built-in resources of Kubernetes, CRDs, APIServices, RBAC, tokens of
// service accounts, admission by webhooks and policies, deletion of namespaces,
// garbage collection, quotas and limits.
func Defaults() controlplane.Part {
	return controlplane.Parts{
		authz.RBAC{}, rbac.All(),
		serviceaccount.Tokens{},
		preset.Standard(),
		discovery.EndpointSlices{},
		kube.All(),
		crd.Definitions{},
		aggregator.APIServices{},
	}
}

// settings say how a plane is started.
type settings struct {
	without    bool
	kubeconfig bool
	storage    controlplane.Datastore
	crds       []fs.FS
}

// setting is a part that is for Start.
type setting func(*settings)

// Install says that the part is for Start: it declares nothing.
func (setting) Install(*controlplane.Plan) error {
	return errors.New("the part is for planetest.Start: do not give it to a server")
}

// WithoutDefaults has the plane consist of the given parts only.
func WithoutDefaults() controlplane.Part {
	return setting(func(s *settings) { s.without = true })
}

// WithCRDs has the plane start with the CRDs of all *.yaml, *.yml and *.json files
// of the file systems, such as os.DirFS("config/crd/bases").
func WithCRDs(fsys ...fs.FS) controlplane.Part {
	return setting(func(s *settings) { s.crds = append(s.crds, fsys...) })
}

// WithStorage has the plane keep its objects there, in place of memory.
func WithStorage(d controlplane.Datastore) controlplane.Part {
	return setting(func(s *settings) { s.storage = d })
}

// WithKubeconfig has the plane also listen at a free port of 127.0.0.1, and write
// a kubeconfig for programs outside of the process: see [Plane.Kubeconfig].
func WithKubeconfig() controlplane.Part {
	return setting(func(s *settings) { s.kubeconfig = true })
}

// resolve sorts settings from parts, and adds the defaults. A default makes way
// for a given part of the same type.
func resolve(given []controlplane.Part) (settings, []controlplane.Part, error) {
	s := settings{storage: memory.Store{}}
	var parts []controlplane.Part
	taken := map[reflect.Type]bool{}
	for _, p := range flatten(given) {
		if set, ok := p.(setting); ok {
			set(&s)
			continue
		}
		parts = append(parts, p)
		if t := reflect.TypeOf(p); t.Kind() == reflect.Struct && t.Name() != "" && reflect.TypeOf(p).NumMethod() > 0 {
			taken[t] = true
		}
	}
	all := []controlplane.Part{}
	if !s.without {
		for _, p := range flatten([]controlplane.Part{Defaults()}) {
			if !taken[reflect.TypeOf(p)] {
				all = append(all, p)
			}
		}
	}
	return s, append(all, parts...), nil
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

// union is one file system with the files of several, each in a directory of
// its own.
func union(all []fs.FS) (fs.FS, error) {
	if len(all) == 1 {
		return all[0], nil
	}
	files := fstest.MapFS{}
	for i, fsys := range all {
		err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := fs.ReadFile(fsys, name)
			files[path.Join(strconv.Itoa(i), name)] = &fstest.MapFile{Data: data}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
