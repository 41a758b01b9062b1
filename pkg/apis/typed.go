package apis

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// hubType is the object as the hub type. The registry hands out nothing else,
// and typed has compared T with the hub.
func hubType[T any](obj runtime.Object) *T { return any(obj).(*T) }

// onHub adapts a function for the hub type.
func onHub[T, R any](f func(context.Context, *T) R) func(context.Context, runtime.Object) R {
	return func(ctx context.Context, obj runtime.Object) R { return f(ctx, hubType[T](obj)) }
}

// Default fills in what the client left empty. It runs when an object is
// written, in whatever version, and when one is read that was stored before the
// default existed. It must leave set fields alone, and replaces defaults that
// AddToScheme of the type's package registered.
func Default[T any](fill func(*T)) Option {
	return typed[T]("Default", func(d *Definition) {
		d.defaults = append(d.defaults, func(obj runtime.Object) { fill(hubType[T](obj)) })
	})
}

// Validate checks an object on create and on update and returns all that is
// wrong with it; the client gets 422 Unprocessable Entity with a cause for
// each. On a write to /status only errors of fields below "status", with
// [StatusAndMetadata] also those below "metadata", count: the client cannot mend
// the rest there.
//
// Metadata is validated without it.
func Validate[T any](check func(context.Context, *T) field.ErrorList) Option {
	return typed[T]("Validate", func(d *Definition) { d.validate = append(d.validate, onHub(check)) })
}

// ValidateCreate checks objects on create only, after Validate: the place for
// rules that stored objects need not keep.
func ValidateCreate[T any](check func(context.Context, *T) field.ErrorList) Option {
	return typed[T]("ValidateCreate", func(d *Definition) { d.validateCreate = append(d.validateCreate, onHub(check)) })
}

// ValidateUpdate checks, after Validate, whether the object may replace the old
// one: the place for immutable fields
// (k8s.io/apimachinery/pkg/api/validation.ValidateImmutableField).
func ValidateUpdate[T any](check func(ctx context.Context, obj, old *T) field.ErrorList) Option {
	return typed[T]("ValidateUpdate", func(d *Definition) {
		d.validateUpdate = append(d.validateUpdate, func(ctx context.Context, obj, old runtime.Object) field.ErrorList {
			return check(ctx, hubType[T](obj), hubType[T](old))
		})
	})
}

// PrepareForCreate changes an object before it is validated and created: the
// place to drop what clients may not set. Status is already dropped.
func PrepareForCreate[T any](prepare func(context.Context, *T)) Option {
	return typed[T]("PrepareForCreate", func(d *Definition) {
		d.prepareCreate = append(d.prepareCreate, func(ctx context.Context, obj runtime.Object) {
			prepare(ctx, hubType[T](obj))
		})
	})
}

// PrepareForUpdate changes an object before it is validated and replaces the
// old one, which must not be changed. Status is already kept; metadata.generation
// counts what this function changes. It does not run for /status.
func PrepareForUpdate[T any](prepare func(ctx context.Context, obj, old *T)) Option {
	return typed[T]("PrepareForUpdate", func(d *Definition) {
		d.prepareUpdate = append(d.prepareUpdate, func(ctx context.Context, obj, old runtime.Object) {
			prepare(ctx, hubType[T](obj), hubType[T](old))
		})
	})
}

// Drop empties fields that clients may not set yet, such as those of features
// that are off. It runs after the defaults on create, where old is nil, on
// update, and on a write to /status. It should keep fields that the old object
// has set, and must not change old.
func Drop[T any](drop func(obj, old *T)) Option {
	return typed[T]("Drop", func(d *Definition) {
		d.drops = append(d.drops, func(obj, old runtime.Object) {
			if old == nil {
				drop(hubType[T](obj), nil)
				return
			}
			drop(hubType[T](obj), hubType[T](old))
		})
	})
}

// Warn returns warnings for the client that creates or updates an object; keep
// each below 120 characters, "spec.colour: deprecated, use spec.color".
func Warn[T any](warnings func(context.Context, *T) []string) Option {
	return typed[T]("Warn", func(d *Definition) { d.warn = append(d.warn, onHub(warnings)) })
}

// SelectableFields adds fields to field selectors besides metadata.name and
// metadata.namespace, each with its value in an object. Selecting by any other
// field is refused with 400 Bad Request.
func SelectableFields[T any](values map[string]func(*T) string) Option {
	return typed[T]("SelectableFields", func(d *Definition) {
		if d.selectable == nil {
			d.selectable = map[string]func(runtime.Object) string{}
		}
		for name, value := range values {
			d.selectable[name] = func(obj runtime.Object) string { return value(hubType[T](obj)) }
		}
	})
}

// Columns sets what kubectl get prints: row returns one cell for each of cols.
// Name comes before them and Age after them, though before those with a
// priority above 0, which only `-o wide` shows. The default is Name and
// Created At.
func Columns[T any](row func(*T) []any, cols ...metav1.TableColumnDefinition) Option {
	return typed[T]("Columns", func(d *Definition) {
		d.columns = &columns{definitions: cols, row: func(obj runtime.Object) []any { return row(hubType[T](obj)) }}
	})
}

// Table sets what kubectl get prints, all of it: unlike with [Columns], neither
// Name nor Age are added.
func Table[T any](row func(*T) []any, cols ...metav1.TableColumnDefinition) Option {
	return typed[T]("Table", func(d *Definition) {
		d.columns = &columns{definitions: cols, row: func(obj runtime.Object) []any { return row(hubType[T](obj)) }, whole: true}
	})
}

// Scale adds the /scale sub-resource: an autoscaling/v1 Scale that
// HorizontalPodAutoscalers and kubectl scale understand. get returns the wanted
// replicas (nil is 0), the observed ones, and the label selector of what is
// scaled, or ""; set stores the wanted ones.
//
// Server-side apply tracks the owner of the replicas as the field spec.replicas,
// which must be where they are in every version.
func Scale[T any](get func(*T) (spec *int32, status int32, selector string), set func(*T, int32)) Option {
	return typed[T]("Scale", func(d *Definition) {
		d.scale = &scale{
			get: func(obj runtime.Object) (*int32, int32, string) { return get(hubType[T](obj)) },
			set: func(obj runtime.Object, replicas int32) { set(hubType[T](obj), replicas) },
		}
	})
}
