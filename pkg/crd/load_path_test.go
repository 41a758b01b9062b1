package crd

import (
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

func TestLine(t *testing.T) {
	t.Parallel()
	const text = `spec:
  a.b:
    c: 1
  a:
    b:
      d: &anchor
        e: 2
  list:
  - x: 1
  -
    y: *anchor
`
	objects := (&document{file: "x.yaml", data: []byte(text)}).objects()
	o := objects[0]
	o.read(o.root, spec.Schema{}, "")
	cases := map[string]struct {
		reason, path string
		want         int
	}{
		"Root":         {path: "", want: 1},
		"Field":        {path: "spec.list", want: 8},
		"Index":        {path: "spec.list[0].x", want: 9},
		"IndexTooHigh": {reason: "the list it would be in", path: "spec.list[7].x", want: 8},
		"DottedName":   {reason: "a name with the separator in it", path: "spec.a.b.c", want: 3},
		"Dotted":       {reason: "the longest name is not always the one", path: "spec.a.b.d", want: 6},
		"Missing":      {reason: "where it should stand", path: "spec.a.b.z", want: 5},
		"MissingRoot":  {path: "metadata.name", want: 1},
		"Alias":        {reason: "what an alias stands for is found by where it is used", path: "spec.list[1].y.e", want: 11},
		"Garbage":      {path: "][.[spec", want: 1},
	}
	for name, tc := range cases {
		if got := o.line(tc.path); got != tc.want {
			t.Errorf("%s: line %d, want %d (%s)", name, got, tc.want, tc.reason)
		}
	}
}

func TestPublished(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"spec.validation.openAPIV3Schema.properties[size].items": "spec.versions[0].schema.openAPIV3Schema.properties.size.items",
		"spec.validation":                       "spec.versions[0].schema",
		"spec.additionalPrinterColumns[2].type": "spec.versions[0].additionalPrinterColumns[2].type",
		"spec.versions[1].name":                 "spec.versions[1].name",
		"spec.version":                          "spec.versions[0].name",
		"metadata.annotations[open":             "metadata.annotations[open",
		"":                                      "",
	}
	for path, want := range cases {
		if got := published(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}
