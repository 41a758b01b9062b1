package crd

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// widgets is a CRD without a mistake. The cases below edit it.
const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          size:
            type: integer
            maximum: 10
          parts:
            type: array
            items:
              type: object
              properties:
                name: {type: string}
`

// edited is the text with each old, new pair replaced.
func edited(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(text, pairs[i]) != 1 {
			t.Fatalf("%q is %d times in the text", pairs[i], strings.Count(text, pairs[i]))
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

func files(contents map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range contents {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// gadgets is a second CRD.
var gadgets = strings.NewReplacer("widget", "gadget", "Widget", "Gadget").Replace(widgets)

func TestLoad(t *testing.T) {
	t.Parallel()
	inList := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	cases := map[string]struct {
		reason string
		files  map[string]string
		want   []string // file:line of metadata.name, and the name
	}{
		"One": {
			reason: "the usual case",
			files:  map[string]string{"widgets.yaml": widgets},
			want:   []string{"widgets.yaml:4 widgets.example.com"},
		},
		"Order": {
			reason: "directories are read recursively in lexical order, other files not at all",
			files: map[string]string{
				"b/widgets.yml": widgets, "a/x/gadgets.yaml": gadgets, "README.md": "{{", "yaml": "{{",
				"..data/widgets.yaml": widgets,
			},
			want: []string{"a/x/gadgets.yaml:4 gadgets.example.com", "b/widgets.yml:4 widgets.example.com"},
		},
		"Documents": {
			reason: "empty documents and comments are none, and lines count from the start of the file",
			files:  map[string]string{"all.yaml": "\ufeff# first\n---\n---\n# nothing\n--- # widgets\n" + widgets + "...\n---\r\n\n" + gadgets + "---\n"},
			want:   []string{"all.yaml:9 widgets.example.com", "all.yaml:37 gadgets.example.com"},
		},
		"Lists": {
			reason: "kubectl get -o yaml gives lists",
			files: map[string]string{
				"a.yaml": "apiVersion: v1\nkind: List\nitems:\n" + inList(widgets),
				"b.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinitionList\nitems:\n" + inList(gadgets),
				"c.yaml": "apiVersion: v1\nkind: List\nitems:\n",
			},
			want: []string{"a.yaml:7 widgets.example.com", "b.yaml:7 gadgets.example.com"},
		},
		"JSON": {
			reason: "JSON is read too, with tabs",
			files:  map[string]string{"widgets.json": asJSON(t, widgets)},
			want:   []string{"widgets.json:5 widgets.example.com"},
		},
		"Comments": {
			reason: "a file without any object is no mistake",
			files:  map[string]string{"a.yaml": "# later\n", "b.yaml": ""},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definitions, _, err := load(files(tc.files))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			var got []string
			for _, d := range definitions {
				got = append(got, fmt.Sprintf("%s:%d %s", d.source.file, d.line, d.name))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func asJSON(t *testing.T, text string) string {
	t.Helper()
	definitions, _, err := load(files(map[string]string{"x.yaml": text}))
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(definitions[0].body, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestLoadBody(t *testing.T) {
	t.Parallel()
	text := edited(t, widgets,
		"metadata:\n", "status:\n  conditions: []\nmetadata:\n  creationTimestamp: null\n  uid: x\n  annotations: {a: \"b\\u0001\\\"\\n<é\"}\n",
		"type: integer", "type: integer\n            description:\n            default: 0x0a\n            enum: [1, 2.50, 1e3, 10, 0b11, 18446744073709551615, no, \"no\", ~, 2020-01-01]",
		"name: {type: string}", "name: &n {type: string}\n                other: *n\n                third: {<<: [*n, {type: object}], title: x}")
	definitions, _, err := load(files(map[string]string{"widgets.yaml": text}))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(definitions[0].body, &got); err != nil {
		t.Fatalf("%v in %s", err, definitions[0].body)
	}
	wantText := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"annotations":{"a":"b\u0001\"\n<é"},"name":"widgets.example.com"},
	"spec":{"group":"example.com","names":{"kind":"Widget","listKind":"WidgetList","plural":"widgets","singular":"widget"},
	"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{
	"type":"object","properties":{"size":{"type":"integer","default":10,"maximum":10,
	"enum":[1,2.5,1000,10,3,18446744073709551615,false,"no",null,"2020-01-01"]},
	"parts":{"type":"array","items":{"type":"object","properties":{
	"name":{"type":"string"},"other":{"type":"string"},"third":{"type":"string","title":"x"}}}}}}}}]}}`
	if err := json.Unmarshal([]byte(wantText), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// update is for what a test of this package is compared with.
var update = flag.Bool("update", false, "write testdata/*.golden anew")

// TestLoadBroken compares the exact text of every error, because it is what a
// user gets.
func TestLoadBroken(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		edit   []string // of widgets.yaml
		files  map[string]string
	}{
		"UnknownField":         {edit: []string{"maximum: 10", "maxinum: 10"}},
		"UnknownFieldInItems":  {reason: "upstream's strict decoder does not look below items", edit: []string{"{type: string}", "{typ: string}"}},
		"UnknownFieldCase":     {edit: []string{"openAPIV3Schema", "openAPIv3Schema"}},
		"DuplicateField":       {edit: []string{"maximum: 10", "maximum: 10\n            type: string"}},
		"DuplicateProperty":    {edit: []string{"          parts:", "          size: {type: string}\n          parts:"}},
		"WrongTypes":           {reason: "all of a file are reported", edit: []string{"served: true", "served: \"yes\"", "maximum: 10", "maximum: ten", "scope: Namespaced", "scope: 1", "properties:\n          size", "properties: []\n        not:\n          size"}},
		"Alternatives":         {edit: []string{"items:\n", "additionalProperties: nope\n            items:\n", "maximum: 10", "items: yes"}},
		"AlternativesNumber":   {edit: []string{"items:\n", "additionalProperties: 3\n            items:\n", "maximum: 10", "items: 3"}},
		"BooleanKey":           {reason: "YAML 1.1 reads y as true", edit: []string{"name: {", "y: {"}},
		"BooleanWord":          {edit: []string{"listKind: WidgetList", "listKind: No"}},
		"OutOfRange":           {edit: []string{"maximum: 10", "maxLength: 99999999999999999999999"}},
		"OutOfRangeInt32":      {edit: []string{"scope: Namespaced", "scope: Namespaced\n  conversion:\n    strategy: Webhook\n    webhook:\n      conversionReviewVersions: [v1]\n      clientConfig: {service: {name: a, namespace: b, port: 4294967296}}"}},
		"NotANumber":           {edit: []string{"maximum: 10", "maximum: .inf"}},
		"Tag":                  {edit: []string{"maximum: 10", "maximum: !Ref ten"}},
		"Syntax":               {edit: []string{"    served: true", "   served: true"}},
		"SyntaxTab":            {edit: []string{"    served: true", "\tserved: true"}},
		"SyntaxFirstLine":      {files: map[string]string{"a.yaml": "a: b: c\n"}},
		"SyntaxSecondDocument": {reason: "the other documents are checked too", files: map[string]string{"a.yaml": "---\n" + gadgets + "---\nfoo: [\n---\n" + strings.Replace(widgets, "scope", "skope", 1)}},
		"SyntaxAnchor":         {edit: []string{"maximum: 10", "maximum: *ten"}},
		"SyntaxAnchorLater":    {reason: "lines count from the start of the file", files: map[string]string{"a.yaml": gadgets + "---\n" + strings.Replace(widgets, "maximum: 10", "maximum: *ten", 1)}},
		"SyntaxComma":          {reason: "the line without a comma, not the next one", files: map[string]string{"a.json": "{\n\"a\": 1,\n\"b\": 2\n\"c\": 3\n}\n"}},
		"SyntaxUTF8":           {edit: []string{"maximum: 10", "maximum: \xff"}},
		"Template":             {files: map[string]string{"a.yaml": "{{- if .Values.crds }}\n" + widgets + "{{- end }}\n"}},
		"OtherKind":            {edit: []string{"kind: CustomResourceDefinition\n", "kind: CustomResourceDefinitions\n"}},
		"OnlyOtherKinds":       {files: map[string]string{"kustomization.yaml": "resources: []\n", "x/cm.yaml": "# a\n---\napiVersion: v1\nkind: ConfigMap\n"}},
		"NoKind":               {files: map[string]string{"values.yaml": "a: 1\n"}},
		"NoAPIVersion":         {edit: []string{"apiVersion: apiextensions.k8s.io/v1\n", ""}},
		"NoKindOnly":           {edit: []string{"kind: CustomResourceDefinition\n", ""}},
		"V1beta1":              {edit: []string{"apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"}},
		"OtherGroup":           {edit: []string{"apiextensions.k8s.io/v1", "example.com/v1"}},
		"NoObject":             {files: map[string]string{"a.yaml": "- a\n", "b.json": "\"x\"", "c.yaml": "kind: List\nitems: {}\n"}},
		"EndlessList":          {files: map[string]string{"a.yaml": "&a\nkind: List\nitems: [*a]\n"}},
		"EndlessAlias":         {edit: []string{"maximum: 10", "enum: &a [*a]"}},
		"EndlessMerge":         {edit: []string{"maximum: 10", "default: &a {<<: *a}"}},
		"MergeScalar":          {edit: []string{"maximum: 10", "<<: 1"}},
		"MergeList":            {edit: []string{"name: {type: string}", "name: &name {type: string}\n                other:\n                  title: x\n                  <<: [*name, 1]"}},
		"GrowingAlias":         {edit: []string{"maximum: 10", "enum: [&a [x,x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e], &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]]"}},
		"NoSchema":             {edit: []string{widgets[max(0, strings.Index(widgets, "    schema:")):], ""}},
		"NoName":               {edit: []string{"  name: widgets.example.com\n", "  labels: {}\n"}},
		"WrongName":            {edit: []string{"name: widgets.example.com", "name: widget.example.com"}},
		"NoType":               {reason: "a line of the schema, although the internal form has it elsewhere", edit: []string{"type: integer\n", "description: how big\n"}},
		"NonStructural":        {edit: []string{"{type: string}", "{type: string, anyOf: [{type: integer}]}"}},
		"BadDefault":           {edit: []string{"maximum: 10", "default: big"}},
		"TwoVersions":          {edit: []string{"  - name: v1\n", "  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n  - name: v1\n", "type: integer", "type: int"}},
		"NoStorageVersion":     {edit: []string{"storage: true", "storage: false"}},
		"Twice":                {files: map[string]string{"a.yaml": widgets, "b/c.yaml": gadgets + "---\n" + widgets}},
		"NoFile":               {reason: "a wrong directory", files: map[string]string{"README.md": "hello"}},
		"SeveralFiles": {reason: "every problem of every file is reported", files: map[string]string{
			"a.yaml": strings.Replace(widgets, "scope", "skope", 1),
			"b.yaml": "[\n",
			"c.yaml": strings.Replace(gadgets, "type: integer", "type: number\n            pattern: '['\n            minLength: -1", 1),
		}},
	}
	var got strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		tc := cases[name]
		if tc.files == nil {
			tc.files = map[string]string{"widgets.yaml": edited(t, widgets, tc.edit...)}
		}
		_, _, err := load(files(tc.files))
		if err == nil {
			t.Errorf("%s: no error (%s)", name, tc.reason)
		}
		fmt.Fprintf(&got, "== %s\n%v\n", name, err)
	}
	const golden = "testdata/load_broken.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-update writes it): -want +got:\n%s", golden, diff)
	}
}

func TestLoadLeavesOutOtherKinds(t *testing.T) {
	t.Parallel()
	definitions, others, err := load(files(map[string]string{
		"a.yaml":             widgets + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"kustomization.yaml": "resources: [a.yaml]\n",
	}))
	if err != nil || len(definitions) != 1 {
		t.Fatalf("load: %d definitions, %v", len(definitions), err)
	}
	if len(others) != 1 || !strings.HasPrefix(others[0], "a.yaml: line ") || !strings.HasSuffix(others[0], ": ConfigMap") {
		t.Errorf("left out: %q", others)
	}
}
