package bodies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// checkYAML counts what may be in a body of YAML before it is parsed: a parser
// makes hundreds of bytes of each comma, and lets a few aliases repeat a long string
// without end. JSON is YAML too.
func checkYAML(body []byte, l Limits) error {
	aliases := hasAliases(body)
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] == '{' && !aliases && json.Valid(body) {
		return checkJSON(body, l)
	}
	// Most bodies are within the bounds if every byte that may begin a value does.
	m, columns := marksIn(body)
	values, deep := m.all, above(m.open+columns, l.Depth)
	if above(values, l.Values) || deep {
		// In the others, what is in long strings does not count.
		o := outline{limits: l}
		if err := o.read(body); err != nil {
			return err
		}
		values = o.values
	}
	if aliases {
		if err := checkAliases(body); err != nil {
			return err
		}
	}
	// Now it may be parsed. Few have so much that one object could have too much.
	if !aliases && !deep && !above(values, l.Members) && !above(values, l.Metadata) {
		return nil
	}
	converted, err := sigsyaml.YAMLToJSON(body)
	if err != nil {
		return malformed("the body is no YAML: " + short(err.Error()))
	}
	return checkJSON(converted, l)
}

// marks are bytes that may begin values.
type marks struct {
	// all of them, and those that may begin a nested one on the same line.
	all, open int
}

// marksIn counts in a text of YAML. Columns is how many levels of blocks there
// may be: each has a column of its own, or a dash on its line.
func marksIn(p []byte) (m marks, columns int) {
	indent, begun, dashes := 0, false, 0
	for i, b := range p {
		switch b {
		case '\n':
			indent, begun, dashes = 0, false, 0
			continue
		case ' ':
			if !begun {
				indent++
				columns = max(columns, indent)
			}
			continue
		case ',', ':':
			m.all++
		case '[', '{':
			m.all++
			m.open++
		case '-', '?':
			if i+1 == len(p) || isBlank(p[i+1]) {
				m.all++
				dashes++
				columns = max(columns, indent+2*dashes)
				continue
			}
		}
		begun = true
	}
	return m, columns
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// hasAliases tells whether there may be aliases, and anchors that they repeat.
func hasAliases(p []byte) bool {
	return mayBegin(p, '*') && mayBegin(p, '&')
}

// mayBegin tells whether a byte stands where a value may begin, with more behind it.
func mayBegin(p []byte, mark byte) bool {
	for at := 0; ; {
		i := bytes.IndexByte(p[at:], mark)
		if i < 0 {
			return false
		}
		at += i + 1
		before := byte(' ')
		if at > 1 {
			before = p[at-2]
		}
		if at < len(p) && !isBlank(p[at]) && (isBlank(before) || bytes.IndexByte([]byte("[{,:-?"), before) >= 0 || before >= 0x80) {
			return true
		}
	}
}

// expanded is how long a body may become when its aliases are replaced, in bytes.
const expanded = 3 << 20

// checkAliases refuses a body whose aliases repeat too much. Its values are few
// enough to be parsed.
func checkAliases(body []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return malformed("the body is no YAML: " + short(err.Error()))
	}
	sizes := map[*yaml.Node]int{}
	if size := sizeOf(&document, sizes); size > expanded {
		return tooMuch("the aliases of the YAML repeat more bytes than are allowed", expanded)
	}
	return nil
}

// sizeOf is about how long a node is as JSON. A node that contains itself is
// too long.
func sizeOf(n *yaml.Node, known map[*yaml.Node]int) int {
	if size, found := known[n]; found {
		return size
	}
	known[n] = math.MaxInt32
	size := len(n.Value) + 4
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		size = sizeOf(n.Alias, known)
	}
	for _, c := range n.Content {
		size = min(size+sizeOf(c, known), math.MaxInt32)
	}
	known[n] = size
	return size
}

func short(s string) string {
	const most = 200
	if len(s) > most {
		return fmt.Sprintf("%.*s...", most, s)
	}
	return s
}
