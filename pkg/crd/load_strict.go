package crd

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of one CRD with its aliases expanded: aliases of aliases grow without
// limit, and the API server takes no request of more than 3 MiB anyway.
const (
	maxBytes  = 3 << 20
	maxValues = 1 << 20
	maxDepth  = 1000
)

// encoder writes a parsed CRD as JSON and checks it against a shape on the way:
// unknown and duplicate fields, and values of a wrong type.
type encoder struct {
	chunk    chunk
	out      []byte
	problems []error

	path    []string // ".field" and "[index]" from the root to the value
	values  int
	stopped bool
}

func (e *encoder) problem(line int, format string, args ...any) {
	path := strings.TrimPrefix(strings.Join(e.path, ""), ".")
	e.problems = append(e.problems, e.chunk.problem(line, path, fmt.Sprintf(format, args...)))
}

// overflows counts a value, and tells that there are too many of them.
func (e *encoder) overflows(n *yaml.Node, depth int) bool {
	if e.values++; !e.stopped && (e.values > maxValues || len(e.out) > maxBytes || depth > maxDepth) {
		e.stopped = true
		e.path = nil // it is as long as the nesting is deep
		e.problem(n.Line, "larger than %d MiB or nested deeper than %d, aliases expanded", maxBytes>>20, maxDepth)
	}
	return e.stopped
}

// value writes n, which has to be of shape s.
func (e *encoder) value(n *yaml.Node, s *shape, depth int) {
	n = resolve(n)
	if e.overflows(n, depth) {
		return
	}
	k := kindOf(n)
	switch {
	case k == kindNull:
		e.out = append(e.out, "null"...)
	case k == kindUnknown:
		e.problem(n.Line, "the tag %s has no meaning here", n.Tag)
	case !s.allows(k):
		found := string(k)
		if n.Kind == yaml.ScalarNode && len(n.Value) < 40 {
			found += " (" + n.Value + ")"
		}
		e.problem(n.Line, "expected %s, found %s", s.expected(), found)
	case k == kindObject:
		e.object(n, s, depth)
	case k == kindList:
		e.list(n, s, depth)
	case k == kindString:
		e.out = appendString(e.out, n.Value)
	case k == kindBoolean:
		e.out = strconv.AppendBool(e.out, isTrue(n.Value))
	default:
		e.number(n)
	}
}

func (e *encoder) list(n *yaml.Node, s *shape, depth int) {
	var item *shape
	if s != nil {
		item = s.item
	}
	e.out = append(e.out, '[')
	for i, v := range n.Content {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		e.path = append(e.path, "["+strconv.Itoa(i)+"]")
		e.value(v, item, depth+1)
		if e.stopped {
			return
		}
		e.path = e.path[:len(e.path)-1]
	}
	e.out = append(e.out, ']')
}

func (e *encoder) object(n *yaml.Node, s *shape, depth int) {
	e.out = append(e.out, '{')
	empty := true
	for _, entry := range e.entries(n, depth) {
		if e.stopped {
			return
		}
		elem, send := e.field(entry, s)
		if !send {
			continue
		}
		if !empty {
			e.out = append(e.out, ',')
		}
		empty = false
		e.out = append(appendString(e.out, entry.key.Value), ':')
		e.path = append(e.path, step(entry.key.Value))
		e.value(entry.value, elem, depth+1)
		if e.stopped {
			return
		}
		e.path = e.path[:len(e.path)-1]
	}
	e.out = append(e.out, '}')
}

// field returns the shape of an entry of an object of shape s, and whether the
// entry is one to send.
func (e *encoder) field(entry entry, s *shape) (elem *shape, send bool) {
	if s == nil {
		return nil, true
	}
	if s.fields == nil {
		return s.elem, true
	}
	name := entry.key.Value
	elem, known := s.fields[name]
	if !known {
		e.path = append(e.path, step(name))
		e.problem(entry.key.Line, "unknown field%s", suggestion(s, name))
		e.path = e.path[:len(e.path)-1]
		return nil, false
	}
	// A field without a value is one that is not set, except where null is one.
	unset := elem != nil && kindOf(resolve(entry.value)) == kindNull
	return elem, !unset && !slices.Contains(s.owned, name)
}

// suggestion names the field that only differs in case, the usual slip.
func suggestion(s *shape, name string) string {
	for field := range s.fields {
		if strings.EqualFold(field, name) {
			return fmt.Sprintf(", did you mean %s?", field)
		}
	}
	return ""
}

// entry is a field of an object.
type entry struct{ key, value *yaml.Node }

// entries returns the fields of a mapping, those merged into it ("<<") last. It
// reports keys that are no strings and keys that stand there twice.
func (e *encoder) entries(n *yaml.Node, depth int) []entry {
	if e.overflows(n, depth) {
		return nil
	}
	entries := make([]entry, 0, len(n.Content)/2)
	seen := newKeys(len(n.Content) / 2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if k := kindOf(key); k != kindString {
			e.problem(key.Line, "expected a string as a key, found %s (%s): put it in quotes", k, key.Value)
			continue
		}
		if line := seen.add(key.Value, key.Line, entries); line > 0 {
			e.path = append(e.path, step(key.Value))
			e.problem(key.Line, "duplicate field, first in line %d", e.chunk.before+line)
			e.path = e.path[:len(e.path)-1]
			continue
		}
		entries = append(entries, entry{key, value})
	}
	for _, m := range merged {
		entries = e.merge(entries, m, seen, depth+1)
	}
	return entries
}

// merge adds the entries of a merged mapping, or of a list of them, that are not
// there yet.
func (e *encoder) merge(entries []entry, n *yaml.Node, seen keys, depth int) []entry {
	n = resolve(n)
	if e.overflows(n, depth) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		for _, x := range e.entries(n, depth) {
			if seen.add(x.key.Value, x.key.Line, entries) == 0 {
				entries = append(entries, x)
			}
		}
	case yaml.SequenceNode:
		for _, m := range n.Content {
			entries = e.merge(entries, m, seen, depth+1)
		}
	default:
		e.problem(n.Line, "expected an object to merge, found %s", kindOf(n))
	}
	return entries
}

// keys finds duplicate keys. Most objects are small, for which a map costs more
// than looking through their entries.
type keys map[string]int

func newKeys(n int) keys {
	if n <= 16 {
		return nil
	}
	return make(keys, n)
}

// add returns the line of an earlier key of that name, or 0.
func (k keys) add(name string, line int, entries []entry) int {
	if k != nil {
		if line, found := k[name]; found {
			return line
		}
		k[name] = line
		return 0
	}
	for _, x := range entries {
		if x.key.Value == name {
			return x.key.Line
		}
	}
	return 0
}

// kindOf tells what a node is, as kubectl reads it: YAML 1.1, in which "yes" is
// a boolean, and dates are strings.
func kindOf(n *yaml.Node) valueKind {
	switch {
	case n.Kind == yaml.MappingNode:
		return kindObject
	case n.Kind == yaml.SequenceNode:
		return kindList
	case n.Kind != yaml.ScalarNode:
		return kindNull // an empty document
	}
	switch n.ShortTag() {
	case "!!str":
		if n.Style == 0 && isWord(n.Value) {
			return kindBoolean
		}
		return kindString
	case "!!timestamp":
		return kindString
	case "!!bool":
		return kindBoolean
	case "!!int":
		return kindInteger
	case "!!float":
		return kindNumber
	case "!!null":
		return kindNull
	case "!!merge":
		return kindString // "<<" as a value
	default:
		return kindUnknown
	}
}

// isWord tells whether a plain scalar is a boolean in YAML 1.1 only.
func isWord(value string) bool {
	if len(value) == 0 || len(value) > len("yes") {
		return false
	}
	switch value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return true
	}
	return false
}

func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "true", "y", "yes", "on":
		return true
	}
	return false
}

// number writes an integer or a float.
func (e *encoder) number(n *yaml.Node) {
	if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil && strconv.FormatInt(i, 10) == n.Value {
		e.out = append(e.out, n.Value...)
		return
	}
	var value any
	err := n.Decode(&value)
	if f, isFloat := value.(float64); isFloat && (math.IsInf(f, 0) || math.IsNaN(f)) {
		err = errors.New("JSON has no such number")
	}
	if err == nil {
		var text []byte
		if text, err = json.Marshal(value); err == nil {
			e.out = append(e.out, text...)
			return
		}
	}
	e.problem(n.Line, "expected a number, found %s: %s", n.Value, strings.TrimPrefix(err.Error(), "yaml: "))
}

// appendString writes a JSON string. Descriptions are most of a CRD's bytes.
func appendString(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	out = append(out, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		out = append(out, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, '\\', 'n')
		default:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(out, s[start:]...), '"')
}
