package reflected_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

const here = "github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected_test."

// shortRef leaves only the type's name.
func shortRef(name string) spec.Ref {
	return spec.MustCreateRef("#/" + name[strings.LastIndex(name, ".")+1:])
}

// rule is what a schema, or a part of one, looks like.
type rule struct {
	reason string
	root   any
	opts   []reflected.Option
	name   string // definition, the root's own by default
	path   string // a property, or with a slash another part of the schema; "" is the whole
	want   string // JSON
}

func TestRules(t *testing.T) {
	t.Parallel()
	cases := map[string]rule{}
	for _, rules := range []map[string]rule{
		scalarRules(), knownRules(), tagRules(), embeddingRules(), compositeRules(), mergeRules(), methodRules(), optionRules(),
	} {
		maps.Copy(cases, rules)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			get, err := reflected.Build(nil, types(tc.root), tc.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if tc.name == "" {
				tc.name = util.GetCanonicalTypeName(tc.root)
			}
			def, ok := get(shortRef)[tc.name]
			if !ok {
				t.Fatalf("%s: no definition %s", tc.reason, tc.name)
			}
			if diff := cmp.Diff(decode(t, tc.want), part(t, def.Schema, tc.path)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func scalarRules() map[string]rule {
	return map[string]rule{
		"Bool":       {reason: "scalars have their zero value as default", root: scalars{}, path: "bool", want: `{"type":"boolean","default":false}`},
		"Int":        {reason: "as openapi-gen", root: scalars{}, path: "int", want: `{"type":"integer","format":"int32","default":0}`},
		"Int8":       {reason: "as openapi-gen", root: scalars{}, path: "int8", want: `{"type":"integer","format":"byte","default":0}`},
		"Int16":      {reason: "as openapi-gen", root: scalars{}, path: "int16", want: `{"type":"integer","format":"int32","default":0}`},
		"Int32":      {reason: "as openapi-gen", root: scalars{}, path: "int32", want: `{"type":"integer","format":"int32","default":0}`},
		"Int64":      {reason: "as openapi-gen", root: scalars{}, path: "int64", want: `{"type":"integer","format":"int64","default":0}`},
		"Uint":       {reason: "as openapi-gen", root: scalars{}, path: "uint", want: `{"type":"integer","format":"int32","default":0}`},
		"Uint8":      {reason: "as openapi-gen", root: scalars{}, path: "uint8", want: `{"type":"integer","format":"byte","default":0}`},
		"Uint16":     {reason: "as openapi-gen", root: scalars{}, path: "uint16", want: `{"type":"integer","format":"int32","default":0}`},
		"Uint32":     {reason: "as openapi-gen", root: scalars{}, path: "uint32", want: `{"type":"integer","format":"int64","default":0}`},
		"Uint64":     {reason: "as openapi-gen", root: scalars{}, path: "uint64", want: `{"type":"integer","format":"int64","default":0}`},
		"Float32":    {reason: "as openapi-gen", root: scalars{}, path: "float32", want: `{"type":"number","format":"float","default":0}`},
		"Float64":    {reason: "as openapi-gen", root: scalars{}, path: "float64", want: `{"type":"number","format":"double","default":0}`},
		"String":     {reason: "as openapi-gen", root: scalars{}, path: "string", want: `{"type":"string","default":""}`},
		"NamedType":  {reason: "a named scalar is its kind", root: scalars{}, path: "colour", want: `{"type":"string","default":""}`},
		"GoDuration": {reason: "a time.Duration is a number in JSON", root: scalars{}, path: "wait", want: `{"type":"integer","format":"int64","default":0}`},
		"Bytes":      {reason: "encoding/json writes base64", root: scalars{}, path: "bytes", want: `{"type":"string","format":"byte"}`},
	}
}

func knownRules() map[string]rule {
	return map[string]rule{
		"Time":      {reason: "a definition, without default as it has UnmarshalJSON", root: known{}, path: "time", want: `{"$ref":"#/Time"}`},
		"StdTime":   {reason: "as openapi-gen", root: known{}, path: "std", want: `{"type":"string","format":"date-time"}`},
		"Duration":  {reason: "a definition", root: known{}, path: "duration", want: `{"$ref":"#/Duration"}`},
		"Quantity":  {reason: "a definition", root: known{}, path: "quantity", want: `{"$ref":"#/Quantity"}`},
		"Raw":       {reason: "any value, not base64", root: known{}, path: "raw", want: `{"x-kubernetes-preserve-unknown-fields":true}`},
		"Number":    {reason: "a Go string, a JSON number", root: known{}, path: "number", want: `{"x-kubernetes-preserve-unknown-fields":true}`},
		"Any":       {reason: "any value", root: known{}, path: "any", want: `{"x-kubernetes-preserve-unknown-fields":true}`},
		"Interface": {reason: "any value", root: known{}, path: "object", want: `{"x-kubernetes-preserve-unknown-fields":true}`},
		"Text":      {reason: "encoding/json writes the text as a string", root: known{}, path: "addr", want: `{"type":"string"}`},
		"Odd":       {reason: "a struct with MarshalJSON gets a definition", root: known{}, path: "odd", want: `{"$ref":"#/odd"}`},
		"OddDefinition": {
			reason: "what MarshalJSON writes is unknown, never guess", root: known{}, name: here + "odd",
			want: `{"x-kubernetes-preserve-unknown-fields":true}`,
		},
		"IntOrString": {
			reason: "v3 says one of both, v2 cannot", root: known{}, name: "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
			want: `{"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-v2-schema":{"type":"string","format":"int-or-string"}}`,
		},
	}
}

func tagRules() map[string]rule {
	return map[string]rule{
		"Required": {
			reason: "required is what is always in JSON", root: tags{}, path: "/required",
			want: `["NoTag","-","pointer","quoted","notQuoted"]`,
		},
		"NoTag":     {reason: "the Go name", root: tags{}, path: "NoTag", want: `{"type":"string","default":""}`},
		"OnlyOpts":  {reason: "the Go name", root: tags{}, path: "OnlyOpts", want: `{"type":"string"}`},
		"Hidden":    {reason: "left out", root: tags{}, path: "Hidden", want: `null`},
		"Private":   {reason: "left out", root: tags{}, path: "private", want: `null`},
		"Dash":      {reason: "encoding/json calls it -", root: tags{}, path: "-", want: `{"type":"string","default":""}`},
		"Omitempty": {reason: "no default", root: tags{}, path: "omitempty", want: `{"type":"integer","format":"int32"}`},
		"Omitzero":  {reason: "a struct keeps its default, as openapi-gen does it", root: tags{}, path: "omitzero", want: `{"$ref":"#/inner","default":{}}`},
		"Pointer":   {reason: "no default", root: tags{}, path: "pointer", want: `{"type":"string"}`},
		"Optional":  {reason: "no default", root: tags{}, path: "optional", want: `{"$ref":"#/inner"}`},
		"Quoted":    {reason: "a string in JSON", root: tags{}, path: "quoted", want: `{"type":"string"}`},
		"NotQuoted": {
			reason: "encoding/json quotes scalars only", root: tags{}, path: "notQuoted",
			want: `{"type":"array","items":{"type":"integer","format":"int64"}}`,
		},
	}
}

func embeddingRules() map[string]rule {
	return map[string]rule{
		"Inline":        {reason: "the outer field hides the embedded one of the same name", root: embeds{}, path: "a", want: `{"type":"integer","format":"int32","default":0}`},
		"InlinePointer": {reason: "inlined like a struct", root: embeds{}, path: "b", want: `{"type":"string","default":""}`},
		"EmbeddedNamed": {reason: "with a JSON name it is a field", root: embeds{}, path: "third", want: `{"$ref":"#/third","default":{}}`},
		"EmbeddedName":  {reason: "a non-struct is a field with the type's name", root: embeds{}, path: "Label2", want: `{"type":"string","default":""}`},
		"InlineRequired": {
			reason: "what is behind an embedded pointer may be missing", root: embeds{}, path: "/required",
			want: `["a","third","Label2"]`,
		},
	}
}

func compositeRules() map[string]rule {
	return map[string]rule{
		"List":     {reason: "elements have no default", root: nested{}, path: "list", want: `{"type":"array","items":{"type":"string"}}`},
		"Pointers": {reason: "no default for pointers", root: nested{}, path: "pointers", want: `{"type":"array","items":{"$ref":"#/inner"}}`},
		"Structs":  {reason: "elements have no default", root: nested{}, path: "structs", want: `{"type":"array","items":{"$ref":"#/inner"}}`},
		"Lists": {
			reason: "lists nest", root: nested{}, path: "lists",
			want: `{"type":"array","items":{"type":"array","items":{"type":"integer","format":"int32"}}}`,
		},
		"Array": {reason: "an array is a list", root: nested{}, path: "array", want: `{"type":"array","items":{"type":"boolean"}}`},
		"Map":   {reason: "by additionalProperties", root: nested{}, path: "map", want: `{"type":"object","additionalProperties":{"$ref":"#/inner"}}`},
		"Named": {reason: "keys of a named string type are strings", root: nested{}, path: "named", want: `{"type":"object","additionalProperties":{"type":"string"}}`},
		"Anys": {
			reason: "values of any kind", root: nested{}, path: "anys",
			want: `{"type":"object","additionalProperties":{"x-kubernetes-preserve-unknown-fields":true}}`,
		},
		"Anonymous": {
			reason: "a struct without a name is drawn in place", root: nested{}, path: "anonymous",
			want: `{"type":"object","required":["x"],"default":{},"properties":{"x":{"type":"integer","format":"int32","default":0}}}`,
		},
		"Recursive": {
			reason: "by reference", root: nested{}, name: here + "tree",
			want: `{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#/tree"}},"byName":{"type":"object","additionalProperties":{"$ref":"#/tree"}}}}`,
		},
	}
}

func mergeRules() map[string]rule {
	return map[string]rule{
		"MergeKey": {
			reason: "a merge key makes a list map", root: merged{}, path: "entries",
			want: `{"type":"array","items":{"$ref":"#/entry"},"x-kubernetes-patch-strategy":"merge","x-kubernetes-patch-merge-key":"name","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"]}`,
		},
		"RetainKeys": {
			reason: "merge may come with another strategy", root: merged{}, path: "retained",
			want: `{"type":"array","items":{"$ref":"#/entry"},"x-kubernetes-patch-strategy":"merge,retainKeys","x-kubernetes-patch-merge-key":"name","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"]}`,
		},
		"Set": {
			reason: "merged scalars are a set", root: merged{}, path: "set",
			want: `{"type":"array","items":{"type":"string"},"x-kubernetes-patch-strategy":"merge","x-kubernetes-list-type":"set"}`,
		},
		"Replaced": {
			reason: "only merge makes a list type", root: merged{}, path: "replaced",
			want: `{"type":"array","items":{"type":"string"},"x-kubernetes-patch-strategy":"replace"}`,
		},
		"PatchStruct": {reason: "structs have strategies too", root: merged{}, path: "struct", want: `{"$ref":"#/second","x-kubernetes-patch-strategy":"retainKeys"}`},
		"PatchMap": {
			reason: "maps merge anyway, and have no list type", root: merged{}, path: "map",
			want: `{"type":"object","additionalProperties":{"type":"integer","format":"int32"},"x-kubernetes-patch-strategy":"merge"}`,
		},
		"Atomic": {reason: "no list type is atomic", root: merged{}, path: "plain", want: `{"type":"array","items":{"$ref":"#/entry"}}`},
		"ListType": {
			reason: "the option goes before the tags", root: merged{}, path: "entries",
			opts: []reflected.Option{reflected.ListType(reflect.TypeFor[merged](), "Entries", "map", "name", "port")},
			want: `{"type":"array","items":{"$ref":"#/entry"},"x-kubernetes-patch-strategy":"merge","x-kubernetes-patch-merge-key":"name","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name","port"]}`,
		},
	}
}

func methodRules() map[string]rule {
	return map[string]rule{
		"NonStructMethods": {reason: "a type that declares its schema has a definition", root: methods{}, path: "level", want: `{"$ref":"#/level"}`},
		"SchemaType": {
			reason: "v3 and v2 as declared", root: methods{}, name: here + "level",
			want: `{"format":"level","oneOf":[{"type":"string"},{"type":"integer"}],"x-kubernetes-v2-schema":{"type":"string","format":"level"}}`,
		},
		"Definition": {
			reason: "as declared, with a pointer receiver", root: methods{}, name: here + "defined",
			want: `{"type":"string","description":"defined by hand"}`,
		},
		"DefinitionV3": {
			reason: "v3, with v2 inside", root: methods{}, name: here + "definedV3",
			want: `{"type":"number","x-kubernetes-v2-schema":{"type":"string"}}`,
		},
		"ModelName": {
			reason: "found under its name, with its descriptions", root: methods{}, name: "com.example.Renamed",
			want: `{"type":"object","description":"renamed has a name.","required":["a"],"properties":{"a":{"type":"string","default":"","description":"a is a field."}}}`,
		},
		"Inherits": {
			reason: "neither name nor description of the whole come from a part; that of the part's field does",
			root:   methods{}, name: here + "inherits",
			want: `{"type":"object","required":["a","b"],"properties":{"a":{"type":"string","default":"","description":"a is a field."},"b":{"type":"string","default":""}}}`,
		},
	}
}

func optionRules() map[string]rule {
	return map[string]rule{
		"Enum": {
			reason: "sorted values", root: scalars{}, path: "colour", opts: []reflected.Option{reflected.Enum(red, green)},
			want: `{"type":"string","default":"","enum":["green","red"]}`,
		},
		"EnumElement": {
			reason: "wherever the type is", root: nested{}, path: "named", opts: []reflected.Option{reflected.Enum(red)},
			want: `{"type":"object","additionalProperties":{"type":"string","enum":["red"]}}`,
		},
		"DescribeField": {
			reason: "the option goes before SwaggerDoc", root: methods{}, name: "com.example.Renamed", path: "a",
			opts: []reflected.Option{reflected.Describe(reflect.TypeFor[renamed](), "A", "other")},
			want: `{"type":"string","default":"","description":"other"}`,
		},
		"DescribeType": {
			reason: "no field is the type", root: &inner{}, opts: []reflected.Option{reflected.Describe(reflect.TypeFor[*inner](), "", "text")},
			want: `{"type":"object","description":"text","required":["a"],"properties":{"a":{"type":"string","default":""}}}`,
		},
	}
}

// part returns a property of a schema, or with a leading slash another part, in JSON's Go form.
func part(t *testing.T, schema spec.Schema, path string) any {
	t.Helper()
	data, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	whole := decode(t, string(data)).(map[string]any)
	if path == "" {
		return whole
	}
	if key, ok := strings.CutPrefix(path, "/"); ok {
		return whole[key]
	}
	return whole["properties"].(map[string]any)[path]
}

func decode(t *testing.T, data string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

func TestBaseIsReferredTo(t *testing.T) {
	t.Parallel()
	base := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		return map[string]common.OpenAPIDefinition{here + "inner": {}, here + "tree": {}}
	}
	get, err := reflected.Build(base, types(nested{}, &inner{}))
	if err != nil {
		t.Fatal(err)
	}
	defs := get(shortRef)
	for _, name := range []string{"inner", "tree"} {
		if _, ok := defs[here+name]; ok {
			t.Errorf("%s is defined again although base has it", name)
		}
	}
	want := []string{here + "inner", here + "second", here + "tree", "io.k8s.apimachinery.pkg.apis.meta.v1.Time"}
	if diff := cmp.Diff(want, defs[here+"nested"].Dependencies); diff != "" {
		t.Errorf("dependencies, with those of base (-want +got):\n%s", diff)
	}
}

func TestEachCallMakesNewDefinitions(t *testing.T) {
	t.Parallel()
	get, err := reflected.Build(nil, types(known{}))
	if err != nil {
		t.Fatal(err)
	}
	const name = "io.k8s.apimachinery.pkg.api.resource.Quantity"
	delete(get(ref)[name].Schema.Extensions, common.ExtensionV2Schema) // as the v3 builder does
	if _, ok := get(ref)[name].Schema.Extensions[common.ExtensionV2Schema]; !ok {
		t.Error("what one caller takes away is missing for the next")
	}
}
