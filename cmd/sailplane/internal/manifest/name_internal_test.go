package manifest

import (
	"slices"
	"strings"
	"testing"
)

// TestFileName has names that any file system takes, and that differ where names do,
// without regard to capitals.
func TestFileName(t *testing.T) {
	cases := map[string]string{
		"keys":                "keys",
		"system:foo":          "system%3Afoo",
		"Foo":                 "%46oo",
		"a b*?":               "a%20b%2A%3F",
		".hidden":             "%2Ehidden",
		"kube-root-ca.crt":    "kube-root-ca.crt",
		"aux":                 "%61ux",
		"com1.example.com":    "%63om1.example.com",
		"common":              "common",
		"ä":                   "%C3%A4",
		"caf\u00e9\u0301.com": "caf%C3%A9%CC%81.com",
	}
	for name, want := range cases {
		if got := fileName(name); got != want {
			t.Errorf("%q has the file name %q, want %q", name, got, want)
		}
	}
	var seen []string
	for _, long := range []string{strings.Repeat("a", 253), strings.Repeat("A", 253), strings.Repeat("A", 252) + "a", strings.Repeat("é", 120)} {
		got := fileName(long)
		if len(got) > maxFileName || slices.Contains(seen, strings.ToLower(got)) {
			t.Errorf("a long name has the file name %q of %d bytes, before %q", got, len(got), seen)
		}
		seen = append(seen, strings.ToLower(got))
	}
}

// TestSplit finds documents and where they are.
func TestSplit(t *testing.T) {
	long := "a: " + strings.Repeat("x", 100<<10)
	cases := map[string]struct {
		text string
		want []string
	}{
		"one":                      {"a: b\n", []string{"a: b\n"}},
		"none":                     {"# nothing\n---\n\n", nil},
		"no newline":               {"a: b\n---\nc: d", []string{"a: b\n", "\nc: d"}},
		"first":                    {"---\na: b\n", []string{"\na: b\n"}},
		"empty ones":               {"---\n---\n# x\n---\na: b\n---\n", []string{"\na: b\n"}},
		"on the same line":         {"--- {a: b}\n--- # c\nd: e\n", []string{" {a: b}\n", " # c\nd: e\n"}},
		"carriage returns":         {"a: b\r\n---\r\nc: d\r\n", []string{"a: b\r\n", "\r\nc: d\r\n"}},
		"in a text":                {"a: |\n  ---\n  b\n----\n", []string{"a: |\n  ---\n  b\n----\n"}},
		"longer than the buffer":   {long + "---\n---\n" + long, []string{long + "---\n", "\n" + long}},
		"a separator at a buffer":  {"a: " + strings.Repeat("x", 64<<10-3) + "---\nb: c\n", []string{"a: " + strings.Repeat("x", 64<<10-3) + "---\nb: c\n"}},
		"a separator is cut there": {"a: " + strings.Repeat("x", 64<<10-5) + "\n---\nb: c\n", []string{"a: " + strings.Repeat("x", 64<<10-5) + "\n", "\nb: c\n"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := split("file", strings.NewReader(c.text), func(d document, text []byte) error {
				got = append(got, string(text))
				if at := c.text[d.offset : int(d.offset)+d.length]; at != string(text) || d.number != len(got) {
					t.Errorf("document %d is at %d: %.20q, and is %.20q", d.number, d.offset, at, text)
				}
				return nil
			})
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%.100q, want %.100q: %v", got, c.want, err)
			}
		})
	}
}

// TestDifferences are paths, without values.
func TestDifferences(t *testing.T) {
	a := map[string]any{
		"same": "x", "gone": "x", "spec": map[string]any{"replicas": int64(1), "list": []any{"a", map[string]any{"b": "c"}}, "short": []any{"a"}},
		"data": map[string]any{"tls.crt": "secret"}, "kind": "x",
	}
	b := map[string]any{
		"same": "x", "new": "x", "spec": map[string]any{"replicas": int64(2), "list": []any{"a", map[string]any{"b": "d"}}, "short": []any{}},
		"data": map[string]any{"tls.crt": "other"}, "kind": map[string]any{},
	}
	want := `data["tls.crt"], gone, kind, new, spec.list[1].b and 2 more`
	if got := listed(differences("", a, b)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := differences("", a, a); got != nil {
		t.Errorf("an object differs from itself: %q", got)
	}
}
