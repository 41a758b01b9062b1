package reflected_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

type (
	hasChan        struct{ C chan int }
	hasFunc        struct{ F map[string][]func() }
	hasComplex     struct{ X complex128 }
	hasIntKeys     struct{ M map[int]string }
	hasNamedInline struct {
		inner `json:"inner,inline"`
	}
	hasInlineField struct {
		F inner `json:",inline"`
	}
	hasTwins struct {
		A string `json:"B"`
		B string
	}
	hasHiddenPointer struct {
		*second `json:",inline"`
	}
	hasLoop struct{ L loop }
	loop    []loop
	Cycle   struct {
		*Cycle `json:",inline"`
	}
	hasBadKey struct {
		E []entry `patchStrategy:"merge" patchMergeKey:"nme"`
	}
	hasScalarKey struct {
		E []string `patchStrategy:"merge" patchMergeKey:"name"`
	}
	hasGeneric struct{ B box[int32] }
	box[T any] struct{ V T }
	hasOneOf   struct{ O oneOfOnly }
	oneOfOnly  struct{}
	// inheritsTypeMeta is TypeMeta to whoever asks for its OpenAPI name.
	inheritsTypeMeta struct {
		metav1.TypeMeta `json:",inline"`
		A               string `json:"a"`
	}
)

func (oneOfOnly) OpenAPIV3OneOfTypes() []string { return []string{"string"} }

// mistake is what Build refuses.
type mistake struct {
	reason string
	roots  []reflect.Type
	opts   []reflected.Option
	want   []string // parts of the error
}

func TestErrors(t *testing.T) {
	t.Parallel()
	cases := typeMistakes()
	maps.Copy(cases, optionMistakes())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			get, err := reflected.Build(nil, tc.roots, tc.opts...)
			if err == nil || get != nil {
				t.Fatalf("%s: no error", tc.reason)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: no %q in: %v", tc.reason, part, err)
				}
			}
		})
	}
}

func typeMistakes() map[string]mistake {
	local := func() reflect.Type { type inner struct{ Other int32 }; return reflect.TypeFor[inner]() }()
	return map[string]mistake{
		"Chan":    {reason: "no JSON form", roots: types(hasChan{}), want: []string{here + "hasChan", "field C", "chan"}},
		"Func":    {reason: "no JSON form, however deep", roots: types(hasFunc{}), want: []string{here + "hasFunc", "field F", "func"}},
		"Complex": {reason: "no JSON form", roots: types(hasComplex{}), want: []string{"field X", "complex128"}},
		"IntKeys": {reason: "OpenAPI has string keys only", roots: types(hasIntKeys{}), want: []string{"field M", "keys of type int"}},
		"All": {
			reason: "everything at once", roots: types(hasChan{}, hasComplex{}),
			want: []string{"hasChan: field C", "hasComplex: field X"},
		},
		"NamedInline":   {reason: "JSON and apply disagree", roots: types(hasNamedInline{}), want: []string{"field inner", "inline"}},
		"InlineField":   {reason: "JSON and apply disagree", roots: types(hasInlineField{}), want: []string{"field F", "inline"}},
		"Twins":         {reason: "encoding/json drops both", roots: types(hasTwins{}), want: []string{"field A", `"B"`, "hasTwins.B"}},
		"HiddenPointer": {reason: "cannot be decoded", roots: types(hasHiddenPointer{}), want: []string{"field second", "unexported"}},
		"Loop":          {reason: "nothing to refer to", roots: types(hasLoop{}), want: []string{"field L", here + "loop"}},
		"Cycle":         {reason: "has infinitely many fields", roots: types(Cycle{}), want: []string{"field Cycle", "in itself"}},
		"BadKey":        {reason: "apply would fail later", roots: types(hasBadKey{}), want: []string{"field E", `"nme"`, here + "entry"}},
		"ScalarKey":     {reason: "strings have no keys", roots: types(hasScalarKey{}), want: []string{"field E", "must contain structs, not string"}},
		"Generic":       {reason: "brackets and slashes in a $ref", roots: types(hasGeneric{}), want: []string{"field B", "OpenAPIModelName"}},
		"OneOf":         {reason: "as openapi-gen", roots: types(hasOneOf{}), want: []string{"oneOfOnly", "OpenAPISchemaType"}},
		"Inherits": {
			reason: "a server would serve TypeMeta's schema", roots: types(inheritsTypeMeta{}),
			want: []string{"inheritsTypeMeta", "embedded field TypeMeta", "OpenAPIModelName"},
		},
		"SameName": {reason: "one would hide the other", roots: append(types(inner{}), local), want: []string{"root", "both called " + here + "inner"}},
		"NilRoot":  {reason: "no type", roots: []reflect.Type{nil}, want: []string{"root is nil"}},
		"NoStruct": {reason: "not an API object", roots: types("x"), want: []string{"root string"}},
	}
}

func optionMistakes() map[string]mistake {
	merged := reflect.TypeFor[merged]()
	return map[string]mistake{
		"EnumPlain": {reason: "would limit all strings", roots: types(inner{}), opts: []reflected.Option{reflected.Enum("a")}, want: []string{"Enum", "string"}},
		"EnumEmpty": {reason: "would allow nothing", roots: types(scalars{}), opts: []reflected.Option{reflected.Enum[colour]()}, want: []string{"colour", "no values"}},
		"EnumUnused": {
			reason: "most likely a mistake", roots: types(inner{}), opts: []reflected.Option{reflected.Enum(red)},
			want: []string{"option Enum for " + here + "colour"},
		},
		"DescribeUnknown": {
			reason: "most likely a mistake", roots: types(inner{}),
			opts: []reflected.Option{reflected.Describe(reflect.TypeFor[inner](), "Z", "text")},
			want: []string{"option Describe for " + here + "inner.Z"},
		},
		"DescribeNil": {
			reason: "no type", roots: types(inner{}), opts: []reflected.Option{reflected.Describe(nil, "Z", "text")},
			want: []string{"option Describe", `"Z"`, "nil"},
		},
		"ListKind": {
			reason: "not one of three", roots: types(nested{}),
			opts: []reflected.Option{reflected.ListType(reflect.TypeFor[nested](), "List", "bag")},
			want: []string{"field List", `"bag"`},
		},
		"ListOnMap": {
			reason: "no list", roots: types(nested{}),
			opts: []reflected.Option{reflected.ListType(reflect.TypeFor[nested](), "Map", "set")},
			want: []string{"field Map", "is not a list"},
		},
		"ListSetKeys": {
			reason: "only maps have keys", roots: types(nested{}),
			opts: []reflected.Option{reflected.ListType(reflect.TypeFor[nested](), "List", "set", "name")},
			want: []string{"field List", "map keys"},
		},
		"ListMapNoKeys": {
			reason: "a map needs keys", roots: []reflect.Type{merged},
			opts: []reflected.Option{reflected.ListType(merged, "Entries", "map")},
			want: []string{"field Entries", "needs the names of its keys"},
		},
	}
}
