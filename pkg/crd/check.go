package crd

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"k8s.io/utils/lru"
)

const (
	// mostErrors is how many errors one value of a custom resource may have in it.
	// Validation compares each with each, again for every level above it: 10,000 take
	// a second, 100,000 take minutes.
	// https://github.com/kubernetes/kube-openapi/blob/master/pkg/validation/validate/result.go
	mostErrors = 2_000
	// reported is how many of them an answer has.
	reported = 100
	// keptSchemas is how many schemas are kept that objects were checked with.
	keptSchemas = 16
)

// checking refuses custom resources with more errors than validation can take, and
// reports the first of many. It is upstream's validation, which stops.
type checking struct {
	plugins
	groups  *groups
	schemas *lru.Cache // *checked by schemaKey
}

// plugins are the other admission plugins.
type plugins interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// checked is what objects of a version are checked with.
type checked struct {
	schema *spec.Schema
	// quick is the schema, to see quickly that there are few errors.
	quick *node
	// status says that the status has its own requests, and others do not change it.
	status bool
}

// schemaKey is what a schema is of.
type schemaKey struct {
	uid        types.UID
	generation int64
	version    string
}

// newChecking checks after all other plugins that change objects: they may repair one.
func newChecking(g *groups, others plugins) *checking {
	return &checking{others, g, lru.New(keptSchemas)}
}

// Admit implements admission.MutationInterface: it comes before validation, which a
// ValidationInterface comes after.
func (c *checking) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := c.plugins.Admit(ctx, a, o); err != nil {
		return err
	}
	if op := a.GetOperation(); op != admission.Create && op != admission.Update {
		return nil
	}
	object, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	s, err := c.of(a)
	if s == nil || err != nil {
		return err
	}
	old, _ := a.GetOldObject().(*unstructured.Unstructured)
	if errs := s.errors(s.stored(object, old, a.GetSubresource()), old); errs != nil {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	return nil
}

// stored is the content of an object as it would be stored: only requests for the status
// change that, and nothing else.
func (s *checked) stored(object, old *unstructured.Unstructured, subresource string) map[string]any {
	if !s.status {
		return object.Object
	}
	from, status := object, old
	if subresource == "status" && old != nil {
		from, status = old, object
	}
	content := maps.Clone(from.Object)
	delete(content, "status")
	if status != nil && status.Object["status"] != nil {
		content["status"] = status.Object["status"]
	}
	return content
}

// errors are those that are reported of an object with many; nil: validation says what
// is wrong.
func (s *checked) errors(content map[string]any, old *unstructured.Unstructured) field.ErrorList {
	p := &possible{}
	if p.reports(s.quick, content) <= reported && p.errors <= mostErrors {
		return nil
	}
	run := &check{}
	if old != nil {
		run.old = old.Object
	}
	errs := validation.ValidateCustomResource(nil, content, run.of(s.schema))
	switch n := len(errs); {
	case run.over:
		return append(errs[:min(n, reported)], field.Forbidden(nil, fmt.Sprintf(
			"more than %d of its values are wrong, or are by an alternative of its schema: no more were looked at", mostErrors)))
	case n > reported:
		return append(errs[:reported], field.Forbidden(nil, fmt.Sprintf("%d more errors are not shown", n-reported)))
	}
	return nil
}

// of is what the object of a request is checked with; nil if there is nothing.
func (c *checking) of(a admission.Attributes) (*checked, error) {
	crd, err := c.groups.lister.Get(a.GetResource().GroupResource().String())
	if err != nil {
		return nil, nil //nolint:nilerr // no resource of a CRD, or one that is going
	}
	key := schemaKey{crd.UID, crd.Generation, a.GetKind().Version}
	if s, ok := c.schemas.Get(key); ok {
		return s.(*checked), nil
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != key.version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		internal := &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, internal, nil)
		if err != nil {
			return nil, err
		}
		_, schema, err := validation.NewSchemaValidator(internal)
		if err != nil {
			return nil, err
		}
		s := &checked{schema, newNode(schema), v.Subresources != nil && v.Subresources.Status != nil}
		c.schemas.Add(key, s)
		return s, nil
	}
	return nil, nil
}

// check is a run of validation over a value and what is in it.
type check struct {
	old any
	// over says that one of the values has more errors than there may be. The rest
	// counts as right then.
	over bool
	// last is the validator of the last value that was neither an object nor an array.
	last *validate.SchemaValidator
}

// of is the validator of the whole.
func (c *check) of(s *spec.Schema) validation.SchemaCreateValidator {
	return whole{value{check: c, old: c.old, schema: s, root: s, formats: strfmt.Default}}
}

// whole is the outermost value.
type whole struct{ value }

// Validate implements validation.SchemaCreateValidator.
func (w whole) Validate(v any, _ ...validation.ValidationOption) *validate.Result {
	return w.value.Validate(v)
}

// value validates one value as upstream does, and those in it by values of its own.
type value struct {
	*check
	in      *inside // of what it is a part; nil: it is the whole
	old     any     // what it was before; nil: not known
	schema  *spec.Schema
	root    any
	path    string
	formats strfmt.Registry
}

// SetPath implements validate.ValueValidator.
func (value) SetPath(string) {}

// Applies implements validate.ValueValidator.
func (value) Applies(any, reflect.Kind) bool { return true }

// Validate implements validate.ValueValidator. What did not change is right, as upstream
// has it with ratcheting (KEP-4008).
func (v value) Validate(data any) *validate.Result {
	result := &validate.Result{}
	if v.over || v.old != nil && reflect.DeepEqual(v.old, data) {
		return result
	}
	if object, ok := data.(map[string]any); ok && missing(v.schema.Required, object) > mostErrors {
		v.over = true
		return result
	}
	if v.quick(data) {
		return result
	}
	parts := &inside{value: v}
	result.Merge(validate.NewSchemaValidator(alone(v.schema), v.root, v.path, v.formats, parts.option).Validate(data))
	for i := range v.schema.AllOf {
		result.Merge(v.by(&v.schema.AllOf[i]).Validate(data))
	}
	for _, alternatives := range [][]spec.Schema{v.schema.AnyOf, v.schema.OneOf} {
		for i := range alternatives {
			v.by(&alternatives[i]).Validate(data) // what its errors are does not matter, only how many
		}
	}
	if v.schema.Not != nil {
		v.by(v.schema.Not).Validate(data)
	}
	if v.in != nil {
		v.in.count(len(result.Errors))
	}
	return result
}

// quick tells whether a value that is no object and no array is right. Validators are
// large, and lists of values share the schema of their items: so they share one validator.
func (v value) quick(data any) bool {
	switch data.(type) {
	case map[string]any, []any:
		return false
	}
	if v.last == nil || v.last.Schema != v.schema {
		v.last = validate.NewSchemaValidator(v.schema, v.root, v.path, v.formats)
	}
	return v.last.Validate(data).IsValid()
}

// alone is a schema without its alternatives: upstream gives them no options, so they are
// looked at here.
func alone(s *spec.Schema) *spec.Schema {
	if s.AllOf == nil && s.AnyOf == nil && s.OneOf == nil && s.Not == nil {
		return s
	}
	own := *s
	own.AllOf, own.AnyOf, own.OneOf, own.Not = nil, nil, nil, nil
	return &own
}

// missing is how many required fields an object does not have.
func missing(required []string, object map[string]any) int {
	n := 0
	for _, name := range required {
		if _, ok := object[name]; !ok {
			n++
		}
	}
	return n
}

// by is the same value with another schema.
func (v value) by(s *spec.Schema) value {
	v.schema, v.in = s, nil
	return v
}

// inside are the values in one.
type inside struct {
	value
	errors int
}

func (i *inside) count(errors int) {
	if i.errors += errors; i.errors > mostErrors {
		i.over = true
	}
}

// option has upstream validate what is in a value by us.
func (i *inside) option(o *validate.SchemaValidatorOptions) {
	o.NewValidatorForField = func(
		name string, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option,
	) validate.ValueValidator {
		old, _ := i.old.(map[string]any)
		return value{i.check, i, old[name], s, root, path, formats}
	}
	o.NewValidatorForIndex = func(
		n int, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option,
	) validate.ValueValidator {
		v := value{check: i.check, in: i, schema: s, root: root, path: path, formats: formats}
		if old, _ := i.old.([]any); n < len(old) {
			v.old = old[n]
		}
		return v
	}
}
