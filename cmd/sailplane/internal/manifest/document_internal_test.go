package manifest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// FuzzDocument reads what was written: any text is a value and a key, at the top and
// further down.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		"", "a", "---", "\n---\n", "--- a\n--- b\n", "- a", "yes", "0o14", "1_000", "1e3", "2026-11-28", "\t", " a ", "a\r\nb\r\n", "#", "a: b",
		"\u0085\u2028\ufeff", "\x00\x1b", "é\U0001f600", "|\n>", "'\"", "...\n", "%YAML 1.2\n---\n", "~", "null", "<<", "=", "*a", "&a", "!!binary x", strings.Repeat("k", 2000),
		"a\n\nb\n", "a\n b\n", "\ta\nb\n", "a\n\tb", "a \nb\n", "a\nb\n\n", "?", "? a", "a #b", "a:", "a: ", "[a]", "{a}", "%", "@a", "`a", "//#",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = string(bytes.ToValidUTF8([]byte(s), []byte("?")))
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "a", "annotations": map[string]any{"a": s}},
			"text": s, "all": []any{s, int64(1), 0.5, true, nil, map[string]any{s: s}}, "data": map[string]any{s: s, "a" + s: []any{[]any{s}}},
		}}
		var stream bytes.Buffer
		sink := NewStream(&stream)
		for range 2 {
			b, err := text(u)
			if err != nil {
				t.Fatal(err)
			}
			if err := sink.Add(resourceOf("things"), u, b); err != nil {
				t.Fatal(err)
			}
		}
		if err := sink.Commit(); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := split("file", bytes.NewReader(stream.Bytes()), func(d document, text []byte) error {
			n++
			got, err := decode(d, text)
			if err == nil && !cmp.Equal(got.Object, u.Object) {
				t.Errorf("read something else:\n%s\nwritten:\n%s", cmp.Diff(u.Object, got.Object), text)
			}
			return err
		})
		if err != nil || n != 2 {
			t.Errorf("%d documents: %v\n%s", n, err, &stream)
		}
	})
}

func resourceOf(name string) (r served.Resource) {
	r.Resource = name
	return r
}
