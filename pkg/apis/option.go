package apis

import (
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Option changes what [Resource] makes. An option with a type parameter is for that
// Go type; [Definition.Err] reports it on a resource of another type.
type Option func(*Definition)

// typed is an option that only applies to the hub type T.
func typed[T any](name string, apply func(*Definition)) Option {
	return func(d *Definition) {
		if t := reflect.TypeFor[T](); t != d.hub.object {
			d.optionErrs = append(d.optionErrs, fmt.Errorf("%s is for *%s, not *%s", name, t, d.hub.object))
			return
		}
		apply(d)
	}
}

// ClusterScoped makes objects live outside namespaces.
func ClusterScoped() Option { return func(d *Definition) { d.clusterScoped = true } }

// Kind sets the kind; by default it is the name of the Go type.
func Kind(kind string) Option { return func(d *Definition) { d.kind = kind } }

// Singular sets the singular name, by default the kind in lower case.
func Singular(name string) Option { return func(d *Definition) { d.singular = name } }

// ShortNames adds abbreviations for kubectl, "ap".
func ShortNames(names ...string) Option {
	return func(d *Definition) { d.shortNames = append(d.shortNames, names...) }
}

// Categories adds groupings for kubectl, such as "all".
func Categories(names ...string) Option {
	return func(d *Definition) { d.categories = append(d.categories, names...) }
}

// Status adds the /status sub-resource for the field Status of the type. A
// write to the resource then keeps the stored status; a write to /status
// keeps everything else, metadata included, and does not change
// metadata.generation. That is what CustomResourceDefinitions do:
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#status-subresource
func Status() Option { return func(d *Definition) { d.status = true } }

// StatusAndMetadata adds the /status sub-resource as [Status] does, but a write
// to it changes metadata too. That is what most built-in kinds of Kubernetes do,
// so that a controller can remove its finalizer, or annotate, in the same write.
// kept are the fields of metadata that keep their stored values, out of labels,
// ownerReferences and deletionTimestamp.
func StatusAndMetadata(kept ...string) Option {
	return func(d *Definition) {
		d.status, d.statusMetadata, d.statusKeeps = true, true, kept
		for _, name := range kept {
			if metaFields()[name] == nil {
				d.optionErrs = append(d.optionErrs, fmt.Errorf("StatusAndMetadata: cannot keep field %q", name))
			}
		}
	}
}

// NoGeneration leaves metadata.generation unset, as Kubernetes does for its
// oldest kinds (ConfigMap, Secret, Namespace). By default it counts the changes
// of everything but metadata and status.
func NoGeneration() Option { return func(d *Definition) { d.noGeneration = true } }

// CreateOnUpdate makes a PUT (and a server-side apply, which always does) to a
// name that does not exist create the object. The client then needs the
// permission to create as well.
func CreateOnUpdate() Option { return func(d *Definition) { d.createOnUpdate = true } }

// Verbs restricts the resource to the given verbs out of create, get, list,
// watch, update, patch, delete and deletecollection. The others are absent
// from discovery, and a request gets 405 Method Not Allowed (404 when not even
// the path exists, for example that of an object in a create-only resource).
//
// Not every combination can be served: the handlers of Kubernetes derive patch
// from get and update, and watching needs list. [Definition.Err] lists those
// that can. Sub-resources are not restricted: status may be all that clients can write.
func Verbs(verbs ...string) Option { return func(d *Definition) { d.verbs = verbs } }

// NameValidation sets what makes a valid metadata.name; by default a DNS-1123
// subdomain. It returns what is wrong with the name, or with the prefix when
// the name is generated. Package k8s.io/apimachinery/pkg/api/validation has
// the usual ones. Whatever it allows, a name must be usable in a URL path.
func NameValidation(validate func(name string, prefix bool) []string) Option {
	return func(d *Definition) { d.nameValidation = validate }
}

// RuleOptions says which options of the rules that the types declare are on
// (+k8s:ifEnabled and +k8s:ifDisabled, KEP 5073): mostly feature gates of
// Kubernetes. A rule with an option that is not listed is an internal error.
func RuleOptions(on map[string]bool) Option {
	return func(d *Definition) {
		if d.ruleOptions == nil {
			d.ruleOptions = map[string]bool{}
		}
		maps.Copy(d.ruleOptions, on)
	}
}

// Subresource adds a sub-resource, "finalize", built over the store of the
// resource. What it serves depends on the interfaces of
// k8s.io/apiserver/pkg/registry/rest that it implements; its Destroy must leave
// the store alone. For another strategy, copy the store.
func Subresource(name string, build func(*registry.Store) rest.Storage) Option {
	return func(d *Definition) {
		d.addSubresource(name, func(store *registry.Store, _ strategy) rest.Storage { return build(store) })
	}
}

func (d *Definition) addSubresource(name string, build func(*registry.Store, strategy) rest.Storage) {
	if _, taken := d.subresources[name]; taken {
		d.optionErrs = append(d.optionErrs, fmt.Errorf("sub-resource %q: defined twice", name))
		return
	}
	if d.subresources == nil {
		d.subresources = map[string]func(*registry.Store, strategy) rest.Storage{}
	}
	d.subresources[name] = build
}

// Ignores names the fields that a write to the resource ignores, "status" or
// "spec.finalizers", so that server-side apply does not own them: those that
// [PrepareForCreate] and [PrepareForUpdate] put back. With [Status] and
// [StatusAndMetadata], status is always among them.
func Ignores(fields ...string) Option {
	return func(d *Definition) { d.ignores = append(d.ignores, fields...) }
}

// Store changes the store, for settings without an option: it is called with
// every field set, before the store is connected to its storage.
func Store(change func(*registry.Store)) Option {
	return func(d *Definition) { d.storeHooks = append(d.storeHooks, change) }
}
