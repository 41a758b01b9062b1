package crd

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
)

// numbers are n arrays of as many values.
func numbers(n, each int, value any) []any {
	lists := make([]any, n)
	for i := range lists {
		list := make([]any, each)
		for j := range list {
			list[j] = value
		}
		lists[i] = list
	}
	return lists
}

// TestCheck: what has few errors is for validation to refuse, and what does not change is right.
func TestCheck(t *testing.T) {
	t.Parallel()
	integer := apiextensions.JSONSchemaProps{Type: "integer"}
	listOf := func(s apiextensions.JSONSchemaProps) apiextensions.JSONSchemaProps {
		return apiextensions.JSONSchemaProps{Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &s}}
	}
	bounded := func(most float64) apiextensions.JSONSchemaProps {
		s := listOf(listOf(apiextensions.JSONSchemaProps{Maximum: &most}))
		s.Type, s.Items.Schema.Type = "", ""
		return s
	}
	with := func(change func(s *apiextensions.JSONSchemaProps)) apiextensions.JSONSchemaProps {
		s := listOf(listOf(integer))
		change(&s)
		return s
	}
	never, always := bounded(0), bounded(9)
	for name, c := range map[string]struct {
		schema   apiextensions.JSONSchemaProps
		old, now any
		over     bool
	}{
		"right":                    {schema: with(func(*apiextensions.JSONSchemaProps) {}), now: numbers(9, 900, int64(1))},
		"some errors":              {schema: with(func(*apiextensions.JSONSchemaProps) {}), now: numbers(1, mostErrors, "a")},
		"many errors":              {schema: with(func(*apiextensions.JSONSchemaProps) {}), now: numbers(1, mostErrors+1, "a"), over: true},
		"many errors in few lists": {schema: with(func(*apiextensions.JSONSchemaProps) {}), now: numbers(9, 900, "a"), over: true},
		"unchanged":                {schema: with(func(*apiextensions.JSONSchemaProps) {}), old: numbers(9, 900, "a"), now: numbers(9, 900, "a")},
		"a list more":              {schema: with(func(*apiextensions.JSONSchemaProps) {}), old: numbers(9, 900, "a"), now: append(numbers(9, 900, "a"), []any{"b"})},
		"all changed":              {schema: with(func(*apiextensions.JSONSchemaProps) {}), old: numbers(9, 900, "a"), now: numbers(9, 900, "b"), over: true},
		"allOf": {
			schema: with(func(s *apiextensions.JSONSchemaProps) { s.AllOf = []apiextensions.JSONSchemaProps{always, never} }),
			now:    numbers(9, 900, int64(1)), over: true,
		},
		"anyOf": {
			schema: with(func(s *apiextensions.JSONSchemaProps) { s.AnyOf = []apiextensions.JSONSchemaProps{never, always} }),
			now:    numbers(9, 900, int64(1)), over: true,
		},
		"anyOf with some errors": {
			schema: with(func(s *apiextensions.JSONSchemaProps) { s.AnyOf = []apiextensions.JSONSchemaProps{never, always} }),
			now:    numbers(2, 900, int64(1)),
		},
		"not": {
			schema: with(func(s *apiextensions.JSONSchemaProps) { s.Not = &never }),
			now:    numbers(9, 900, int64(1)), over: true,
		},
		"required": {
			schema: apiextensions.JSONSchemaProps{Type: "object", Required: make([]string, mostErrors+1)},
			now:    map[string]any{"a": int64(1)}, over: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s, err := validation.NewSchemaValidator(&c.schema)
			if err != nil {
				t.Fatal(err)
			}
			run := &check{old: c.old}
			errs := validation.ValidateCustomResource(nil, c.now, run.of(s))
			if run.over != c.over {
				t.Errorf("over is %v with %d errors, want %v", run.over, len(errs), c.over)
			}
		})
	}
}
