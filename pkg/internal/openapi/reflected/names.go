package reflected

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Namer makes a GetDefinitionName function that also works for types without an OpenAPIModelName method. Wrap the one
// of k8s.io/apiserver's DefinitionNamer with it, for both OpenAPI versions.
//
// The builder asks for such a type by its Go name (example.com/fruit/v1.Apple), while a Scheme, and with it the
// DefinitionNamer, knows it by its REST-friendly name (com.example.fruit.v1.Apple). Unwrapped, the definition gets
// neither its group, version and kind nor a name without slashes, and server-side apply finds neither.
func Namer(next func(name string) (string, spec.Extensions)) func(name string) (string, spec.Extensions) {
	return func(name string) (string, spec.Extensions) {
		if known, extensions := next(name); len(extensions) > 0 {
			return known, extensions
		}
		friendly, extensions := next(util.ToRESTFriendlyName(name))
		// A name without a slash is most likely one from OpenAPIModelName, which making it "friendly" would turn
		// around; only a type of package main in the scheme (main.Apple, known as Apple.main) is not.
		if strings.Contains(name, "/") || len(extensions) > 0 {
			return friendly, extensions
		}
		return next(name)
	}
}

// definitionName is the name by which the builder looks up the definition of t: that of GetCanonicalTypeName, unless
// an embedded type has the method that returns it: that type's definition has the name already.
func definitionName(t reflect.Type) (string, error) {
	name, ok := declaredName(sample(t))
	if _, inherited := inheritsName(t); inherited || !ok {
		name = pathName(t)
	}
	if name := name.(string); !strings.ContainsAny(name, "[]") {
		return name, nil
	}
	return "", fmt.Errorf("type %s: generic types have no usable OpenAPI name: give it an OpenAPIModelName method",
		goName(t))
}

// declaredName returns the OpenAPI name, a string, that the methods of a value
// return.
func declaredName(v any) (any, bool) {
	switch namer := v.(type) {
	case util.OpenAPIModelNamer:
		return namer.OpenAPIModelName(), true
	case util.OpenAPICanonicalTypeNamer:
		return namer.OpenAPICanonicalTypeName(), true
	}
	return "", false
}

// inheritsName reports whether t has its OpenAPI name only from an embedded field, and so shares it with another type.
func inheritsName(t reflect.Type) (field string, ok bool) { return inherits(t, declaredName) }

// pathName is the name GetCanonicalTypeName gives to a type without methods.
func pathName(t reflect.Type) string {
	path := strings.TrimPrefix(t.PkgPath(), "vendor/")
	if _, after, ok := strings.Cut(path, "/vendor/"); ok {
		path = after
	}
	return path + "." + t.Name()
}
