package reflected

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Build returns the definitions of all types reachable from the roots, except for those which base already defines:
// those are referred to by name. Merge the result with base before giving it to a server. A root is a struct type or
// a pointer to one; base may be nil.
//
// Definitions have the names that servers look them up by: [k8s.io/kube-openapi/pkg/util.GetCanonicalTypeName]. Types
// without an OpenAPIModelName method also need [Namer]. The extension x-kubernetes-group-version-kind is not set
// here: the published builder takes it from its GetDefinitionName function.
//
// The error joins everything that has no JSON form or is ambiguous, each with its type and field, and every option
// that applies to nothing. Each call of the returned function makes new definitions, which the caller may change; it
// is safe for concurrent use.
func Build(
	base common.GetOpenAPIDefinitions, roots []reflect.Type, opts ...Option,
) (common.GetOpenAPIDefinitions, error) {
	chosen := newSettings()
	for _, opt := range opts {
		opt(chosen)
	}
	known := map[string]bool{}
	if base != nil {
		for name := range base(func(string) spec.Ref { return spec.Ref{} }) {
			known[name] = true
		}
	}
	roots = slices.Clone(roots)
	run := func(ref common.ReferenceCallback) *walk {
		w := &walk{
			known: known, settings: chosen, ref: ref,
			types: map[string]reflect.Type{},
			defs:  map[string]common.OpenAPIDefinition{},
			used:  map[target]bool{},
		}
		w.run(roots)
		return w
	}

	trial := run(func(string) spec.Ref { return spec.Ref{} })
	errs := slices.Concat(chosen.errs, trial.errs)
	if len(trial.errs) == 0 {
		errs = append(errs, chosen.unused(trial.used)...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("openapi definitions by reflection: %w", err)
	}
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		// Only the references differ from the trial run, so this one has no errors either.
		return run(ref).defs
	}, nil
}

// walk makes the definitions of one call.
type walk struct {
	known    map[string]bool // names which base defines
	settings *settings
	ref      common.ReferenceCallback

	types map[string]reflect.Type // definition name -> the type it describes
	queue []reflect.Type          // named in types, not yet in defs
	defs  map[string]common.OpenAPIDefinition
	used  map[target]bool // options that applied
	errs  []error
}

func (w *walk) run(roots []reflect.Type) {
	for _, root := range roots {
		w.root(root)
	}
	for len(w.queue) > 0 {
		t := w.queue[0]
		w.queue = w.queue[1:]
		w.define(t)
	}
}

func (w *walk) root(t reflect.Type) {
	if t == nil {
		w.errs = append(w.errs, errors.New("a root is nil: give the type of an API object"))
		return
	}
	t = deref(t)
	if t.Kind() != reflect.Struct || t.Name() == "" {
		w.errs = append(w.errs, fmt.Errorf("root %s: not a named struct type", goName(t)))
		return
	}
	if field, ok := inheritsName(t); ok {
		w.errs = append(w.errs, fmt.Errorf(
			"root %s: inherits OpenAPIModelName from its embedded field %s, so servers would confuse the two: "+
				"declare the method on %s itself", goName(t), field, t.Name()))
		return
	}
	if _, err := w.enqueue(t); err != nil {
		w.errs = append(w.errs, fmt.Errorf("root %s: %w", goName(t), err))
	}
}

// enqueue returns the name of t's definition and queues t if it has none yet.
func (w *walk) enqueue(t reflect.Type) (string, error) {
	name, err := definitionName(t)
	if err != nil {
		return "", err
	}
	if w.known[name] {
		return name, nil
	}
	if other, ok := w.types[name]; !ok {
		w.types[name] = t
		w.queue = append(w.queue, t)
	} else if other != t {
		return "", fmt.Errorf(
			"two types are both called %s in OpenAPI: rename one, or give it an OpenAPIModelName method", name)
	}
	return name, nil
}

// define makes the definition of a type that [walk.enqueue] has named.
func (w *walk) define(t reflect.Type) {
	name, err := definitionName(t)
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	def, ok, err := declared(t)
	d := &drawing{walk: w, owner: t, deps: map[string]bool{}, open: map[reflect.Type]bool{}}
	switch {
	case err != nil:
		w.errs = append(w.errs, fmt.Errorf("type %s: %w", goName(t), err))
	case ok:
		if def.Schema.Description == "" {
			def.Schema.Description = d.describe(t)
		}
	case marshalsJSON(t):
		def.Schema = arbitrary()
		def.Schema.Description = d.describe(t)
	case marshalsText(t):
		def.Schema = simple("string", "")
		def.Schema.Description = d.describe(t)
	default:
		def.Schema = d.object(t)
		def.Schema.Description = d.describe(t)
		def.Dependencies = slices.Sorted(maps.Keys(d.deps))
	}
	w.defs[name] = def
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// goName is a type's name for error messages: with its package path, when it has one.
func goName(t reflect.Type) string {
	if t.Name() == "" || t.PkgPath() == "" {
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// compareTargets orders options for error messages.
func compareTargets(a, b target) int {
	return cmp.Or(cmp.Compare(goName(a.typ), goName(b.typ)), cmp.Compare(a.field, b.field), cmp.Compare(a.kind, b.kind))
}
