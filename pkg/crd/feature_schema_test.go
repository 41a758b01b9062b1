package crd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// boxes has a field for everything a schema can say.
const boxes = `
versions:
- name: v1
  served: true
  storage: true
  schema:
    openAPIV3Schema:
      type: object
      required: [spec]
      properties:
        spec:
          type: object
          required: [size]
          x-kubernetes-validations:
          - rule: "!has(self.min) || self.min <= self.size"
            messageExpression: "'min is above a ' + (self.size > 50 ? 'big' : 'small') + ' size'"
            reason: FieldValueForbidden
            fieldPath: .min
          properties:
            size: {type: integer, minimum: 1, maximum: 100}
            min: {type: integer}
            name: {type: string, pattern: '^[a-z]+$', maxLength: 5}
            colour: {type: string, enum: [red, green]}
            serial:
              type: string
              x-kubernetes-validations:
              - {rule: self == oldSelf, message: a serial never changes}
            lid:
              type: object
              default: {}
              properties:
                open: {type: boolean, default: false}
                hinge:
                  type: object
                  default: {kind: plain}
                  properties:
                    kind: {type: string}
                    screws: {type: integer, default: 4}
            drawers:
              type: array
              items:
                type: object
                properties:
                  depth: {type: integer, default: 7}
            free:
              type: object
              x-kubernetes-preserve-unknown-fields: true
              properties:
                strict:
                  type: object
                  properties: {known: {type: string}}
            port: {x-kubernetes-int-or-string: true}
            inner: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
            pruned: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, properties: {a: {type: integer}}}}}
            note: {type: string, nullable: true}
            labels: {type: object, additionalProperties: {type: string}}
`

func box(name, spec string) string {
	return "{apiVersion: example.com/v1, kind: Box, metadata: {name: " + name + "}, spec: " + spec + "}"
}

// TestSchema: one server, one CRD, and what its schema makes of objects.
func TestSchema(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.define(t, definition(t, "boxes", "Box", boxes))
	c := p.of("boxes", "v1")

	t.Run("refused", func(t *testing.T) {
		cases := map[string]struct {
			reason, spec, field, want string
		}{
			"Missing":    {"a required field", `{name: a}`, "spec.size", "Required value"},
			"Type":       {"a string for a number", `{size: big}`, "spec.size", `must be of type integer: "string"`},
			"Minimum":    {"a bound", `{size: 0}`, "spec.size", "should be greater than or equal to 1"},
			"Maximum":    {"the other bound", `{size: 101}`, "spec.size", "should be less than or equal to 100"},
			"Pattern":    {"a regular expression", `{size: 1, name: A}`, "spec.name", "should match '^[a-z]+$'"},
			"Length":     {"a length", `{size: 1, name: abcdef}`, "spec.name", "may not be more than 5"},
			"Enum":       {"an enumeration", `{size: 1, colour: blue}`, "spec.colour", `supported values: "red", "green"`},
			"Map":        {"values of a map", `{size: 1, labels: {a: 1}}`, "spec.labels.a", "must be of type string"},
			"IntOrStr":   {"neither of the two", `{size: 1, port: 1.5}`, "spec.port", "integer,string"},
			"Embedded":   {"an object without a kind", `{size: 1, inner: {apiVersion: v1}}`, "spec.inner.kind", "Required value"},
			"EmbeddedAV": {"an object without a version", `{size: 1, inner: {kind: Pod}}`, "spec.inner.apiVersion", "Required value"},
			"CEL":        {"a rule with its own message and place", `{size: 1, min: 3}`, "spec.min", "min is above a small size"},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := c.Create(t.Context(), object(t, box("refused-"+strings.ToLower(name), tc.spec)), metav1.CreateOptions{})
				if got := causes(t, err)[tc.field]; !strings.Contains(got, tc.want) {
					t.Errorf("%s: cause of %s is %q, want %q, in %v", tc.reason, tc.field, got, tc.want, causes(t, err))
				}
			})
		}
	})
	t.Run("all causes at once", func(t *testing.T) {
		_, err := c.Create(t.Context(), object(t, box("many", `{size: 0, name: A, colour: blue}`)), metav1.CreateOptions{})
		got := causes(t, err)
		for _, field := range []string{"spec.size", "spec.name", "spec.colour"} {
			if got[field] == "" {
				t.Errorf("no cause of %s: %v", field, got)
			}
		}
	})
	t.Run("stored", func(t *testing.T) {
		cases := map[string]struct {
			reason, spec, want string
		}{
			"Defaults": {
				"nested defaults, and those below a default", `{size: 1}`,
				`{"size": 1, "lid": {"open": false, "hinge": {"kind": "plain", "screws": 4}}}`,
			},
			"GivenWins": {
				"what is given stays, what is missing beside it is filled", `{size: 1, lid: {open: true, hinge: {}}, drawers: [{}, {depth: 1}]}`,
				`{"size": 1, "lid": {"open": true, "hinge": {"screws": 4}}, "drawers": [{"depth": 7}, {"depth": 1}]}`,
			},
			"Pruned": {
				"unknown fields go, at every depth", `{size: 1, x: 1, lid: {w: 1}, drawers: [{z: 1}]}`,
				`{"size": 1, "lid": {"open": false, "hinge": {"kind": "plain", "screws": 4}}, "drawers": [{"depth": 7}]}`,
			},
			"Preserved": {
				"where they are allowed they stay, but not below a typed field of it",
				`{size: 1, lid: {open: true, hinge: {screws: 1}}, free: {x: [1, {w: null}], strict: {known: a, z: 1}}}`,
				`{"size": 1, "lid": {"open": true, "hinge": {"screws": 1}}, "free": {"x": [1, {"w": null}], "strict": {"known": "a"}}}`,
			},
			"IntOrString": {
				"a number stays a number, a string a string", `{size: 1, lid: {hinge: {}}, port: 8080}`,
				`{"size": 1, "lid": {"open": false, "hinge": {"screws": 4}}, "port": 8080}`,
			},
			"IntOrStringText": {
				"", `{size: 1, lid: {hinge: {}}, port: http}`, `{"size": 1, "lid": {"open": false, "hinge": {"screws": 4}}, "port": "http"}`,
			},
			"Embedded": {
				"an object in an object keeps its metadata, and loses what ObjectMeta lacks",
				`{size: 1, lid: {hinge: {}}, inner: {apiVersion: v1, kind: Pod, metadata: {name: a, bad: 1}, any: 1}}`,
				`{"size": 1, "lid": {"open": false, "hinge": {"screws": 4}}, "inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "any": 1}}`,
			},
			"EmbeddedPruned": {
				"without preserve-unknown-fields it is pruned",
				`{size: 1, lid: {hinge: {}}, pruned: {apiVersion: v1, kind: Pod, metadata: {name: a}, any: 1, spec: {a: 1, b: 2}}}`,
				`{"size": 1, "lid": {"open": false, "hinge": {"screws": 4}}, "pruned": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"a": 1}}}`,
			},
			"Nullable": {
				"null where it is allowed stays", `{size: 1, lid: {hinge: {}}, note: null}`,
				`{"size": 1, "lid": {"open": false, "hinge": {"screws": 4}}, "note": null}`,
			},
			"NullDefault": {
				"null for a field with a default becomes the default", `{size: 1, lid: null}`,
				`{"size": 1, "lid": {"open": false, "hinge": {"kind": "plain", "screws": 4}}}`,
			},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				name := "stored-" + strings.ToLower(name)
				create(t, c, box(name, tc.spec))
				want := map[string]any{}
				if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
					t.Fatal(err)
				}
				got := map[string]any{}
				raw, err := json.Marshal(at(get(t, c, name), "spec"))
				if err == nil {
					err = json.Unmarshal(raw, &got)
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			})
		}
	})
	t.Run("strict", func(t *testing.T) {
		_, err := c.Create(t.Context(), object(t, box("strict", `{size: 1, x: 1}`)), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.x"`) {
			t.Errorf("an unknown field with fieldValidation=Strict: %v", err)
		}
	})
	t.Run("transition rule", func(t *testing.T) {
		u := create(t, c, box("serial", `{size: 1, serial: a}`)) // no oldSelf, no rule
		if _, err := c.Update(t.Context(), set(t, u, "spec.size", int64(2)), metav1.UpdateOptions{}); err != nil {
			t.Errorf("a change of something else: %v", err)
		}
		_, err := c.Patch(t.Context(), "serial", types.MergePatchType, []byte(`{"spec": {"serial": "b"}}`), metav1.PatchOptions{})
		if got := causes(t, err)["spec.serial"]; !strings.Contains(got, "a serial never changes") {
			t.Errorf("a change of the serial: %q, %v", got, err)
		}
		if got := at(get(t, c, "serial"), "spec.serial"); got != "a" {
			t.Errorf("the serial is %v after a refused change", got)
		}
	})
}

// TestRefusedDefinitions: a schema that cannot work is refused, with the place.
func TestRefusedDefinitions(t *testing.T) {
	t.Parallel()
	p := start(t)
	const version = "versions:\n- name: v1\n  served: true\n  storage: true\n  schema:\n    openAPIV3Schema: "
	cases := map[string]struct {
		reason, spec, field, want string
	}{
		"NoType": {
			"every field needs a type", version + "{type: object, properties: {spec: {properties: {a: {type: string}}}}}",
			"spec.validation.openAPIV3Schema.properties[spec].type", "must not be empty for specified object fields",
		},
		"TypeInAllOf": {
			"types stand outside of allOf", version + "{type: object, properties: {a: {allOf: [{type: string}]}}}",
			"spec.validation.openAPIV3Schema.properties[a].allOf[0].type", "must be empty to be structural",
		},
		"Ref":         {"no references", version + `{type: object, properties: {a: {$ref: "#/x"}}}`, "spec.validation.openAPIV3Schema.properties[a].$ref", "$ref is not supported"},
		"NoSchema":    {"a version needs a schema", "versions:\n- {name: v1, served: true, storage: true}", "spec.versions[0].schema.openAPIV3Schema", "Required value"},
		"Preserve":    {"the old way to preserve everything", "preserveUnknownFields: true\n" + version + "{type: object}", "spec.preserveUnknownFields", "cannot set to true"},
		"BadDefault":  {"a default must be valid", version + "{type: object, properties: {a: {type: string, default: 1}}}", "spec.validation.openAPIV3Schema.properties[a].default", "must be of type string"},
		"BadRule":     {"CEL must compile", version + `{type: object, x-kubernetes-validations: [{rule: "self.nothing == 1"}]}`, "spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule", "undefined field"},
		"CostlyRule":  {"CEL must be cheap enough", version + `{type: object, properties: {a: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: "self.all(x, self.all(y, self.all(z, x + y == z)))"}]}}}`, "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule", "exceeds budget"},
		"TwoStorages": {"one version is stored", "versions:\n- {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n- {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}", "spec.versions", "exactly one version"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := p.Resource(crds).Create(t.Context(), definition(t, "things", "Thing", tc.spec), metav1.CreateOptions{})
			if got := causes(t, err)[tc.field]; !strings.Contains(got, tc.want) {
				t.Errorf("%s: cause of %s is %q, want %q, in %v", tc.reason, tc.field, got, tc.want, causes(t, err))
			}
		})
	}
}

// TestSchemaChange: objects that were stored under another schema can be read,
// are defaulted and pruned by the present one, and can be repaired.
func TestSchemaChange(t *testing.T) {
	t.Parallel()
	p := start(t)
	const spec = `
versions:
- name: v1
  served: true
  storage: true
  schema:
    openAPIV3Schema:
      type: object
      properties:
        spec:
          type: object
          properties: {size: {type: integer}, old: {type: string}}
`
	p.define(t, definition(t, "jars", "Jar", spec))
	c := p.of("jars", "v1")
	create(t, c, "{apiVersion: example.com/v1, kind: Jar, metadata: {name: a}, spec: {size: 500, old: x}}")
	w, err := c.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	patch := `{"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties":
		{"spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 100}, "new": {"type": "string", "default": "n"}, "name": {"type": "string"}}}}}}}]}}`
	if _, err := p.Resource(crds).Patch(t.Context(), "jars.example.com", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new schema", func() error {
		return wantField(get(t, c, "a"), "spec.new", "n")
	})
	if got := at(get(t, c, "a"), "spec.old"); got != nil {
		t.Errorf("a field that is no longer in the schema is %v", got)
	}
	if _, err := c.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec": {"name": "x"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("ratcheting: a change beside an invalid field that stays as it is: %v", err)
	}
	_, err = c.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec": {"size": 501}}`), metav1.PatchOptions{})
	if got := causes(t, err)["spec.size"]; !strings.Contains(got, "less than or equal to 100") {
		t.Errorf("an invalid change: %q", got)
	}
	if _, err := c.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec": {"size": 5}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a repair: %v", err)
	}
}
