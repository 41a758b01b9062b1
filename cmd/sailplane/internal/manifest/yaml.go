package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// text is the object as YAML: keys sorted, and lists as far to the left as their keys.
//
// The YAML libraries at hand do not write all that JSON may hold such that they read
// it again: a byte order mark in a text is an error, and a key "<<" is another thing.
// What is not plainly a word is quoted, which also keeps the form of an export from
// changing with a library.
func text(u *unstructured.Unstructured) ([]byte, error) {
	b, err := appendMap(nil, u.Object, "")
	if err != nil {
		return nil, fmt.Errorf("write as YAML: %w", err)
	}
	return b, nil
}

// appendMap appends the lines of a map that is not empty. Its first line is not
// indented: it may follow "- ".
func appendMap(b []byte, m map[string]any, indent string) ([]byte, error) {
	var err error
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, indent...)
		}
		written := word(key)
		if len(written) > maxKey {
			b = append(append(b, "? "...), written...)
			b = append(append(append(b, '\n'), indent...), ':')
		} else {
			b = append(append(b, written...), ':')
		}
		if b, err = appendValue(b, m[key], indent); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return b, nil
}

// maxKey is the length of keys that may stand on the line of their values.
// https://yaml.org/spec/1.2.2/#flow-mappings
const maxKey = 1000

// appendValue appends what follows a key, whose map has the indent.
func appendValue(b []byte, v any, indent string) ([]byte, error) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 {
			return appendMap(append(append(b, '\n'), indent+"  "...), v, indent+"  ")
		}
	case []any:
		if len(v) > 0 {
			return appendList(append(append(b, '\n'), indent...), v, indent)
		}
	}
	return appendScalar(append(b, ' '), v, indent+"  ")
}

// appendList appends the lines of a list that is not empty, as appendMap does.
func appendList(b []byte, list []any, indent string) ([]byte, error) {
	var err error
	for i, v := range list {
		if i > 0 {
			b = append(b, indent...)
		}
		b = append(b, "- "...)
		m, isMap := v.(map[string]any)
		l, isList := v.([]any)
		switch {
		case isMap && len(m) > 0:
			b, err = appendMap(b, m, indent+"  ")
		case isList && len(l) > 0:
			b, err = appendList(b, l, indent+"  ")
		default:
			b, err = appendScalar(b, v, indent+"  ")
		}
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return b, nil
}

// appendScalar appends a value and ends its line. Further lines of a text have the indent.
func appendScalar(b []byte, v any, indent string) ([]byte, error) {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, "{}"...)
	case []any:
		b = append(b, "[]"...)
	case string:
		if isProse(v) {
			return appendProse(b, v, indent), nil
		}
		b = append(b, word(v)...)
	case nil:
		b = append(b, "null"...)
	case bool, int64, float64:
		j, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		b = append(b, j...)
	default:
		return nil, fmt.Errorf("a %T is nothing that an object has", v)
	}
	return append(b, '\n'), nil
}

// word is a text on one line, quoted if it could be taken for something else. YAML
// has all escapes of Go.
// https://yaml.org/spec/1.2.2/#57-escaped-characters
func word(s string) string {
	if isPlain(s) {
		return s
	}
	return strconv.Quote(s)
}

// isPlain tells whether a text can be nothing but a text: it begins with a letter, and
// is no word that means a value in any version of YAML.
func isPlain(s string) bool {
	if s == "" || strings.Contains(s, ": ") || strings.Contains(s, " #") || s[len(s)-1] == ':' || s[len(s)-1] == ' ' {
		return false
	}
	letter := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	if !letter(rune(s[0])) && s[0] != '/' {
		return false
	}
	for _, c := range s {
		if !letter(c) && (c < '0' || c > '9') && !strings.ContainsRune("-_./:=+@,;()#'$*<>&!?~^ ", c) {
			return false
		}
	}
	values := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
	return len(s) > len("false") || !slices.Contains(values, strings.ToLower(s))
}

// isProse tells whether a text reads well as lines, and is read as it is written.
func isProse(s string) bool {
	body := strings.TrimSuffix(s, "\n")
	if !strings.Contains(s, "\n") || body == "" || strings.HasSuffix(body, "\n") || unicode.IsSpace(rune(body[0])) {
		return false
	}
	for line := range strings.SplitSeq(body, "\n") {
		if strings.TrimRightFunc(line, unicode.IsSpace) != line {
			return false
		}
		for _, c := range line {
			if c != '\t' && !unicode.IsPrint(c) {
				return false
			}
		}
	}
	return true
}

// appendProse appends a text as lines.
// https://yaml.org/spec/1.2.2/#812-literal-style
func appendProse(b []byte, s, indent string) []byte {
	body, ends := strings.CutSuffix(s, "\n")
	b = append(b, '|')
	if !ends {
		b = append(b, '-')
	}
	for line := range strings.SplitSeq(body, "\n") {
		b = append(b, '\n')
		if line != "" {
			b = append(append(b, indent...), line...)
		}
	}
	return append(b, '\n')
}
