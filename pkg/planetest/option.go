package planetest

import (
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"path"
	"reflect"
	"strconv"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/discovery"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// Defaults are the parts of a plane for which [WithoutDefaults] is not given:
// the built-in resources of Kubernetes, CRDs, APIServices, RBAC, tokens of
// service accounts, admission by webhooks and policies, deletion of namespaces,
// garbage collection, quotas and limits.
func Defaults() controlplane.Part {
	return controlplane.Parts{
		authz.RBAC{},
		rbac.All(),
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
	storage    controlplane.Storage
	crds       []fs.FS
	scheme     *runtime.Scheme
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
func WithStorage(d controlplane.Storage) controlplane.Part {
	return setting(func(s *settings) { s.storage = d })
}

// WithKubeconfig has the plane also listen at a free port of 127.0.0.1, and write
// a kubeconfig for programs outside of the process: see [Plane.Kubeconfig].
func WithKubeconfig() controlplane.Part {
	return setting(func(s *settings) { s.kubeconfig = true })
}

// WithScheme has the plane know the kinds of Go types, so that objects need no
// apiVersion and kind. Built-in types are known.
func WithScheme(scheme *runtime.Scheme) controlplane.Part {
	return setting(func(s *settings) { s.scheme = scheme })
}

// resolve sorts settings from parts, and adds the defaults. A given part of the
// type of a default one takes its place.
func resolve(given []controlplane.Part) (settings, []controlplane.Part, error) {
	s := settings{storage: memory.Store{}, scheme: runtime.NewScheme()}
	var parts []controlplane.Part
	for _, p := range flatten(given) {
		if set, ok := p.(setting); ok {
			set(&s)
			continue
		}
		parts = append(parts, p)
	}
	if !s.without {
		parts = merge(flatten([]controlplane.Part{Defaults()}), parts)
	}
	if len(s.crds) == 0 {
		return s, parts, nil
	}
	all, err := union(s.crds)
	if err != nil {
		return s, nil, fmt.Errorf("read CRDs: %w", err)
	}
	for i, p := range parts {
		if _, ok := p.(crd.Definitions); ok {
			parts[i] = crd.Definitions{FS: all}
			return s, parts, nil
		}
	}
	return s, append(parts, crd.Definitions{FS: all}), nil
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
