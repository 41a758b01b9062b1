package apis

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/kept"
	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// Kept has a keeper keep the objects, in place of the storage of the plane: a table
// (keep/sqltable), files (keep/filestore), or what somebody writes. Everything else is as for
// stored objects: sub-resources, versions, defaulting, validation, admission, server-side apply,
// selectors, pages and watches. All planes that serve the resource share the objects.
//
// The keeper gets the hub type, with its kind and managed fields, and without a resource version.
// What it returns is defaulted by [Default], and not validated: others may have written it. While
// it fails, or does not answer within 10 seconds, or a minute where it lists everything, clients
// get 503 Service Unavailable with the reason, and watches go on when it is back; see [Stale].
//
// Changes that others made are seen within 200 milliseconds. The keeper is asked for them while
// somebody lists or watches, and a minute longer: a watch from before that is answered with 410
// Gone if there were changes since.
//
// The storage of the plane has none of it, so that what follows the storage does not see it:
// encryption, backups, ResourceQuotas and the garbage collector, which neither deletes these
// objects with their owners nor waits for them. Nor are guards asked. Namespaces that are deleted
// are emptied of them, as that is done through the API. A list of the past is answered from
// memory; where that does not have it, with 410 Gone.
func Kept[T any, PT interface {
	*T
	Object
}](keeper keep.Keeper[T]) Option {
	return typed[T]("Kept", func(d *Definition) {
		if keeper == nil || d.kept != nil {
			d.optionErrs = append(d.optionErrs, errors.New("Kept: give it one keeper, and only one place for the objects"))
			return
		}
		d.kept = func(config controlplane.BuildConfig, resource schema.GroupResource) (generic.RESTOptionsGetter, error) {
			return kept.Options[T, PT]{
				RESTOptionsGetter: config.Options, Keeper: keeper, Kind: d.kind, ClusterScoped: d.clusterScoped,
				Report: config.Source(resource), Stale: d.stale,
				Default: func(o runtime.Object) {
					for _, fill := range d.defaults {
						fill(o)
					}
				},
			}, nil
		}
	})
}
