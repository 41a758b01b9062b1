package apis

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/query"
)

// body is a kind that a sub-resource takes or gives: a body, an answer, or the options
// in a query.
type body struct {
	subresource string
	object      runtime.Object
	kind        string // that it gets where AddToScheme has not registered it
	query       bool
}

// bodyOf is the body of type B, whose kind is the name of the type.
func bodyOf(subresource string, object runtime.Object) body {
	return body{subresource: subresource, object: object, kind: reflect.TypeOf(object).Elem().Name()}
}

// optionsOf is a body that clients write as the query of a URL.
func optionsOf(subresource string, object runtime.Object) body {
	b := bodyOf(subresource, object)
	b.query = true
	return b
}

// register adds the kind to the versions that do not have its Go type yet.
func (b body) register(s *runtime.Scheme, versions []schema.GroupVersion) error {
	if isShared(b.object) {
		return nil
	}
	t := reflect.TypeOf(b.object).Elem()
	if named, is := b.object.(modelNamer); is && named.OpenAPIModelName() == (metav1.TypeMeta{}).OpenAPIModelName() {
		return fmt.Errorf("sub-resource %q: %s inherits its name in OpenAPI from metav1.TypeMeta: "+
			"declare a method OpenAPIModelName of its own", b.subresource, t)
	}
	for _, gv := range versions {
		kinds, _, err := s.ObjectKinds(b.object)
		if err == nil && slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupVersion() == gv }) {
			continue
		}
		if have := s.AllKnownTypes()[gv.WithKind(b.kind)]; have != nil && have != t {
			return fmt.Errorf("sub-resource %q: %s is registered for *%s, not *%s: rename one of the types, or "+
				"register %s under another kind", b.subresource, gv.WithKind(b.kind), have, t, t)
		}
		s.AddKnownTypeWithName(gv.WithKind(b.kind), b.object)
	}
	if !b.query {
		return nil
	}
	decode, err := query.Decoder(t)
	if err != nil {
		return fmt.Errorf("sub-resource %q: %w", b.subresource, err)
	}
	// As what conversion-gen makes: a conversion that AddToScheme adds by hand wins.
	return s.AddGeneratedConversionFunc((*url.Values)(nil), b.object, func(from, to any, _ conversion.Scope) error {
		return decode(*from.(*url.Values), to)
	})
}

// modelNamer is a type with a name in OpenAPI documents.
type modelNamer interface{ OpenAPIModelName() string }

// isShared tells whether the kind is one that every API has, such as Status.
func isShared(obj runtime.Object) bool {
	return reflect.TypeOf(obj).Elem().PkgPath() == reflect.TypeFor[metav1.Status]().PkgPath()
}
