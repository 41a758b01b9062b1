package crd

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"k8s.io/utils/ptr"
)

// sampleValue is a value with others in it.
func sampleValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(2) == 0
	case n == 2:
		return r.Int64N(7) - 3
	case n == 3:
		return float64(r.IntN(9)-4) / 2
	case n == 4 || depth == 0:
		return []string{"", "a", "é", "abcd", "2026-01-01", "1.5"}[r.IntN(6)]
	case n == 5:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = sampleValue(r, depth-1)
		}
		return list
	default:
		object := map[string]any{}
		for range r.IntN(4) {
			object[[]string{"a", "b", "c"}[r.IntN(3)]] = sampleValue(r, depth-1)
		}
		return object
	}
}

// sampleSchema is a schema with others in it.
func sampleSchema(r *rand.Rand, depth int) apiextensions.JSONSchemaProps {
	s := apiextensions.JSONSchemaProps{Nullable: r.IntN(4) == 0}
	rarely := func(set func()) {
		if r.IntN(6) == 0 {
			set()
		}
	}
	s.Type = []string{"", "object", "object", "array", "string", "integer", "number", "boolean"}[r.IntN(8)]
	rarely(func() { s.XIntOrString, s.Type = true, "" })
	rarely(func() { s.Format = []string{"int32", "int64", "float", "date", "byte", "double"}[r.IntN(6)] })
	rarely(func() { s.Enum = []apiextensions.JSON{"a", int64(1), 1.5, nil}[r.IntN(4):] })
	rarely(func() { s.Pattern = "^a" })
	for _, bound := range []**int64{&s.MaxLength, &s.MinLength, &s.MaxItems, &s.MinItems, &s.MaxProperties, &s.MinProperties} {
		rarely(func() { *bound = ptr.To(r.Int64N(3)) })
	}
	for _, bound := range []**float64{&s.Maximum, &s.Minimum} {
		rarely(func() { *bound = ptr.To([]float64{-1, 0, 1, 0.5, 1e10, -1e20}[r.IntN(6)]) })
	}
	rarely(func() { s.MultipleOf = ptr.To(2.0) })
	s.ExclusiveMaximum, s.ExclusiveMinimum = r.IntN(4) == 0, r.IntN(4) == 0
	rarely(func() { s.Required = []string{"a", "b", "d", "d"}[r.IntN(4):] })
	if depth == 0 {
		return s
	}
	some := func() []apiextensions.JSONSchemaProps {
		all := make([]apiextensions.JSONSchemaProps, 1+r.IntN(3))
		for i := range all {
			all[i] = sampleSchema(r, depth-1)
		}
		return all
	}
	if r.IntN(2) == 0 {
		s.Properties = map[string]apiextensions.JSONSchemaProps{"a": sampleSchema(r, depth-1), "b": sampleSchema(r, depth-1)}
		s.Items = &apiextensions.JSONSchemaPropsOrArray{Schema: &some()[0]}
	}
	rarely(func() { s.AdditionalProperties = &apiextensions.JSONSchemaPropsOrBool{Allows: r.IntN(2) == 0} })
	rarely(func() {
		s.AdditionalProperties = &apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: &some()[0]}
	})
	rarely(func() { s.AllOf = some() })
	rarely(func() { s.AnyOf = some() })
	rarely(func() { s.OneOf = some() })
	rarely(func() { s.Not = &some()[0] })
	return s
}

func converted(tb testing.TB, s apiextensions.JSONSchemaProps) *spec.Schema {
	tb.Helper()
	_, schema, err := validation.NewSchemaValidator(&s)
	if err != nil {
		tb.Fatal(err)
	}
	return schema
}

// TestPossible: validation never reports more than was said, and what is right has nothing to report.
func TestPossible(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	right, none := 0, 0
	for range 20_000 {
		props, data := sampleSchema(r, 3), sampleValue(r, 4)
		s := converted(t, props)
		p := &possible{}
		most := p.reports(newNode(s), data)
		errs := validate.NewSchemaValidator(s, nil, "", strfmt.Default).Validate(data).Errors
		if n := len(errs); n > most || most > p.errors {
			t.Fatalf("%v by %+v: %d errors, want at most %d of %d: %v", data, props, n, most, p.errors, errs)
		}
		if len(errs) == 0 {
			right++
			none += one(most == 0)
		}
	}
	if none < right/2 {
		t.Errorf("of %d values that are right only %d have no possible errors", right, none)
	}
}

// honest is an object as clients send it: n items with ten values each, that has much that may be wrong.
func honest(tb testing.TB, n int) (*spec.Schema, map[string]any) {
	tb.Helper()
	text := apiextensions.JSONSchemaProps{Type: "string", MinLength: ptr.To[int64](1), MaxLength: ptr.To[int64](63)}
	number := apiextensions.JSONSchemaProps{Type: "integer", Format: "int32", Minimum: ptr.To(1.0), Maximum: ptr.To(65535.0)}
	port := apiextensions.JSONSchemaProps{XIntOrString: true, AnyOf: []apiextensions.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}}
	properties := map[string]apiextensions.JSONSchemaProps{
		"kind": {Type: "string", Enum: []apiextensions.JSON{"A", "B"}}, "target": port,
		"labels": {Type: "object", AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: &text}},
	}
	for i := range 3 {
		properties[fmt.Sprintf("t%d", i)], properties[fmt.Sprintf("n%d", i)] = text, number
	}
	item := apiextensions.JSONSchemaProps{Type: "object", Required: []string{"kind", "t0"}, Properties: properties}
	items := make([]any, n)
	for i := range items {
		items[i] = map[string]any{
			"kind": "A", "target": "http", "labels": map[string]any{"a": "b"}, "t0": "text", "t1": "text", "t2": "text",
			"n0": int64(1), "n1": int64(80), "n2": int64(8080),
		}
	}
	return converted(tb, apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{
		"items": {Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &item}},
	}}), map[string]any{"items": items}
}

// TestHonest: what is right is not looked at twice.
func TestHonest(t *testing.T) {
	t.Parallel()
	s, object := honest(t, 100)
	p := &possible{}
	if n := p.reports(newNode(s), object); n > 0 || p.errors > mostErrors {
		t.Errorf("%d errors are possible, and %d with those of alternatives", n, p.errors)
	}
}

func BenchmarkCheck(b *testing.B) {
	s, object := honest(b, 100)
	c := &checked{schema: s, quick: newNode(s)}
	for name, run := range map[string]func(){
		"possible":   func() { c.errors(object, nil) },
		"validation": func() { validate.NewSchemaValidator(s, nil, "", strfmt.Default).Validate(object) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// TestReported: of many errors a hundred are reported, with how many more there are, and what is
// not stored is not looked at.
func TestReported(t *testing.T) {
	t.Parallel()
	seed := apiextensions.JSONSchemaProps{Type: "object", Required: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}}
	schema := converted(t, apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{
		"numbers": {Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "integer"}}},
		"seeds":   {Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &seed}},
		"status":  {Type: "integer"},
	}})
	list := func(n int, value any) []any { return numbers(1, n, value)[0].([]any) }
	wrong := map[string]any{"numbers": list(1_500, "a")}
	for name, tc := range map[string]struct {
		reason      string
		object      map[string]any
		old         map[string]any
		subresource string
		want        int
		last        string
	}{
		"few":             {reason: "validation reports them", object: map[string]any{"numbers": list(reported, "a")}},
		"many":            {reason: "nobody reads them", object: wrong, want: reported + 1, last: "1400 more errors are not shown"},
		"many of a value": {reason: "the errors count, not the values", object: map[string]any{"seeds": list(1_950, map[string]any{})}, want: reported + 1, last: "more than 2000"},
		"as before":       {reason: "what does not change is right", object: wrong, old: wrong},
		"with a status":   {reason: "the status is not stored", object: map[string]any{"numbers": list(200, "a"), "status": "a"}, want: reported + 1, last: "100 more errors"},
		"of a status":     {reason: "nothing else is stored", object: wrong, old: map[string]any{"status": int64(1)}, subresource: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &checked{schema: schema, quick: newNode(schema), status: true}
			var old *unstructured.Unstructured
			if tc.old != nil {
				old = &unstructured.Unstructured{Object: tc.old}
			}
			errs := c.errors(c.stored(&unstructured.Unstructured{Object: tc.object}, old, tc.subresource), old)
			if len(errs) != tc.want {
				t.Fatalf("%s: got %d errors, want %d", tc.reason, len(errs), tc.want)
			}
			if tc.want > 0 && !strings.Contains(errs[tc.want-1].Error(), tc.last) {
				t.Errorf("%s: got %v, want %q", tc.reason, errs[tc.want-1], tc.last)
			}
		})
	}
}
