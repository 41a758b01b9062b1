package apis

import (
	"context"
	"reflect"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy is what the registry asks when the resource itself is written. It is
// the counterpart of the customResourceStrategy of apiextensions:
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/strategy.go
type strategy struct {
	*runtime.Scheme
	names.NameGenerator
	d   *Definition
	hub schema.GroupVersion
	// authorizer is the plane's, for sub-resources that need a second permission.
	authorizer authorizer.Authorizer
}

var (
	_ rest.RESTCreateStrategy  = strategy{}
	_ rest.RESTUpdateStrategy  = strategy{}
	_ rest.RESTDeleteStrategy  = strategy{}
	_ rest.ResetFieldsStrategy = strategy{}
)

func (s strategy) NamespaceScoped() bool                       { return !s.d.clusterScoped }
func (s strategy) AllowCreateOnUpdate(context.Context) bool    { return s.d.createOnUpdate }
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }
func (strategy) Canonicalize(runtime.Object)                   {}

// PrepareForCreate applies the defaults once more: those of decoding are for the
// version the client used.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	if s.d.status {
		statusOf(obj).SetZero()
	}
	s.Default(obj)
	s.drop(obj, nil)
	for _, prepare := range s.d.prepareCreate {
		prepare(ctx, obj)
	}
	obj.(Object).SetGeneration(0)
	if !s.d.noGeneration {
		obj.(Object).SetGeneration(1)
	}
}

func (s strategy) drop(obj, old runtime.Object) {
	for _, drop := range s.d.drops {
		drop(obj, old)
	}
}

func (s strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.Default(obj)
	if s.d.status {
		statusOf(obj).Set(statusOf(old.DeepCopyObject()))
	}
	s.drop(obj, old)
	for _, prepare := range s.d.prepareUpdate {
		prepare(ctx, obj, old)
	}
	if !s.d.noGeneration && s.d.desiredStateChanged(obj, old) {
		obj.(Object).SetGeneration(old.(Object).GetGeneration() + 1)
	}
}

func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(obj.(Object), s.NamespaceScoped(), s.d.nameValidation, field.NewPath("metadata"))
	for _, check := range s.d.validate {
		errs = append(errs, check(ctx, obj)...)
	}
	for _, check := range s.d.validateCreate {
		errs = append(errs, check(ctx, obj)...)
	}
	return bound(addRuleErrors(errs, s.Scheme.Validate(ctx, s.d.ruleOptions, obj)))
}

// addRuleErrors adds the errors of rules that the types declare, whose validation
// functions are in the scheme. It does not repeat errors that a check has found.
func addRuleErrors(errs, found field.ErrorList) field.ErrorList {
	if len(found) == 0 {
		return errs
	}
	type place struct {
		kind field.ErrorType
		path string
	}
	known := map[place]bool{}
	for _, err := range errs {
		known[place{err.Type, err.Field}] = true
	}
	for _, err := range found {
		if at := (place{err.Type, err.Field}); !known[at] {
			known[at] = true
			errs = append(errs, err)
		}
	}
	return errs
}

// ValidateUpdate leaves out the rules for metadata, which exist since 1.37:
// rest.BeforeUpdate has validated it, and an error found twice is reported twice.
func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	var errs field.ErrorList
	for _, check := range s.d.validate {
		errs = append(errs, check(ctx, obj)...)
	}
	for _, check := range s.d.validateUpdate {
		errs = append(errs, check(ctx, obj, old)...)
	}
	found := s.Scheme.ValidateUpdate(ctx, s.d.ruleOptions, obj, old)
	found = slices.DeleteFunc(found, func(err *field.Error) bool { return strings.HasPrefix(err.Field, "metadata.") })
	return bound(addRuleErrors(errs, found))
}

func (s strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	var warnings []string
	for _, warn := range s.d.warn {
		warnings = append(warnings, warn(ctx, obj)...)
	}
	return warnings
}

func (s strategy) WarningsOnUpdate(ctx context.Context, obj, _ runtime.Object) []string {
	return s.WarningsOnCreate(ctx, obj)
}

// GetResetFields keeps server-side apply from owning what a write ignores.
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	ignored := slices.Clone(s.d.ignores)
	if s.d.status {
		ignored = append(ignored, "status")
	}
	if len(ignored) == 0 {
		return nil
	}
	return reset(s.d.served(s.hub), ignored)
}

// statusStrategy is what the registry asks when /status is written: everything
// but the status, and the managed fields that record its owners, stays as it is.
// With StatusAndMetadata, metadata is the client's as in any other write.
type statusStrategy struct{ strategy }

func (s statusStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

func (s statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.Default(obj)
	kept := old.DeepCopyObject().(Object)
	if s.d.statusMetadata {
		for _, name := range s.d.statusKeeps {
			metaFields()[name](obj.(Object), kept)
		}
		metadataOf(kept).Set(metadataOf(obj))
	} else {
		kept.SetManagedFields(obj.(Object).GetManagedFields())
	}
	statusOf(kept).Set(statusOf(obj))
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(kept).Elem())
	s.drop(obj, old)
}

func (s statusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	var errs field.ErrorList
	for _, err := range s.strategy.ValidateUpdate(ctx, obj, old) {
		if isWithin("status", err.Field) || s.d.statusMetadata && isWithin("metadata", err.Field) {
			errs = append(errs, err)
		}
	}
	return errs
}

// isWithin tells whether the path of an error is a field or a part of it.
func isWithin(name, path string) bool {
	return path == name || strings.HasPrefix(path, name+".") || strings.HasPrefix(path, name+"[")
}

func (statusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for i, gv := range s.d.served(s.hub) {
		set := fieldpath.NewSet()
		for _, name := range jsonFields(s.d.types()[i].object) {
			writes := name == "status" || name == "metadata" && s.d.statusMetadata
			if !writes && name != "apiVersion" && name != "kind" {
				set.Insert(fieldpath.MakePathOrDie(name))
			}
		}
		for _, name := range s.d.statusKeeps {
			set.Insert(fieldpath.MakePathOrDie("metadata", name))
		}
		reset[fieldpath.APIVersion(gv.String())] = set
	}
	return reset
}
