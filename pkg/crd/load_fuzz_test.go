package crd

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"
)

// FuzzLoad proves that no input makes load panic or run forever, that every
// error names the file, and that what is accepted is JSON with the name of a CRD.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(widgets))
	f.Add([]byte("---\n" + gadgets + "---\n" + widgets))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [&a {kind: x, <<: *a}]\n"))
	f.Add([]byte(strings.Replace(widgets, "maximum: 10", "enum: &a [*a, ~, .nan, !!binary x, 0x1f]", 1)))
	f.Add([]byte("{\"a\": [1, 2"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		definitions, _, err := load(fstest.MapFS{"x.yaml": {Data: data}})
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if strings.HasPrefix(line, "x.yaml: ") {
					return
				}
			}
			t.Fatalf("an error without the file: %v", err)
		}
		for _, d := range definitions {
			var object struct {
				Metadata struct{ Name string }
			}
			if err := json.Unmarshal(d.body, &object); err != nil || object.Metadata.Name != d.name || d.name == "" {
				t.Fatalf("%v in %q of %q", err, d.body, d.name)
			}
			_ = d.problem("spec.versions[0].schema", "x")
		}
	})
}
