package apis

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// storage serves the resource itself.
type storage struct {
	*registry.Store
	shortNames, categories []string
}

// ShortNames are abbreviations for kubectl.
func (s *storage) ShortNames() []string { return s.shortNames }

// Categories are groupings for kubectl.
func (s *storage) Categories() []string { return s.categories }

// Resource is what [controlplane.Plan.Serve] takes, for the group of hub. The
// scheme it is built with must have been given to [Definition.Register].
func (d *Definition) Resource(hub schema.GroupVersion) controlplane.Resource {
	var versions []string
	for _, gv := range d.served(hub) {
		versions = append(versions, gv.Version)
	}
	return controlplane.Resource{
		Name:        d.name,
		Kind:        d.kind,
		Versions:    versions,
		View:        d.view,
		Elsewhere:   d.kept != nil,
		LongRunning: d.longRunning,
		Consoles:    d.consoles,
		Build: func(config controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
			paths, err := d.build(hub, config)
			if err != nil {
				return nil, fmt.Errorf("resource %q: %w", d.name, err)
			}
			byVersion := controlplane.ResourceStorage{}
			for _, v := range versions {
				byVersion[v] = maps.Clone(paths)
			}
			return byVersion, nil
		},
	}
}

// build makes one store and everything that is served from it.
func (d *Definition) build(hub schema.GroupVersion, config controlplane.BuildConfig) (map[string]rest.Storage, error) {
	verbs, err := d.verbSet()
	if err != nil {
		return nil, err
	}
	s := strategy{Scheme: config.Scheme, NameGenerator: names.SimpleNameGenerator, d: d, hub: hub, authorizer: config.Authorizer}
	options := config.Options
	if d.kept != nil {
		if options, err = d.kept(config, hub.WithResource(d.name).GroupResource()); err != nil {
			return nil, err
		}
	}
	store, err := d.newStore(s, options)
	if err != nil {
		return nil, err
	}
	paths := map[string]rest.Storage{
		d.name: verbs.restrict(&storage{Store: store, shortNames: d.shortNames, categories: d.categories}),
	}
	if d.status {
		paths[d.name+"/status"] = d.part(newSubresource(store, statusStrategy{s}))
	}
	if d.scale != nil {
		paths[d.name+"/scale"] = d.part(newScaleStorage(store, d.scale, d.served(hub)))
	}
	for name, build := range d.subresources {
		paths[d.name+"/"+name] = build(store, s)
	}
	return paths, nil
}

// part is a sub-resource that shows a part of an object. Where nothing can be written it has get
// only.
func (d *Definition) part(s readPart) rest.Storage {
	kinds, ofOthers := s.(rest.GroupVersionKindProvider)
	switch {
	case !d.readOnly:
		return s
	case ofOthers:
		return struct {
			readPart
			rest.GroupVersionKindProvider
		}{s, kinds}
	default:
		return struct{ readPart }{s}
	}
}

// readPart is a sub-resource with the verb get.
type readPart interface {
	rest.Storage
	rest.Getter
}

func (d *Definition) newStore(s strategy, options generic.RESTOptionsGetter) (*registry.Store, error) {
	resource := s.hub.WithResource(d.name).GroupResource()
	store := &registry.Store{
		NewFunc:                   func() runtime.Object { return d.hub.newObject() },
		NewListFunc:               d.hub.newList,
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: schema.GroupResource{Group: resource.Group, Resource: d.singular},
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       s,
		TableConvertor:            rest.NewDefaultTableConvertor(resource),
	}
	if d.columns != nil {
		store.TableConvertor = d.columns
	}
	for _, change := range d.storeHooks {
		change(store)
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: d.attributes()}); err != nil {
		return nil, err
	}
	return store, nil
}

// attributes returns the labels and fields that selectors select by.
func (d *Definition) attributes() apistorage.AttrFunc {
	attributes := apistorage.AttrFunc(apistorage.DefaultNamespaceScopedAttr)
	if d.clusterScoped {
		attributes = apistorage.DefaultClusterScopedAttr
	}
	if len(d.selectable) == 0 {
		return attributes
	}
	return attributes.WithFieldMutation(func(obj runtime.Object, set fields.Set) error {
		for name, value := range d.selectable {
			set[name] = value(obj)
		}
		return nil
	})
}
