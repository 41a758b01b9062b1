package crd

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// step is the part of a path for a field: ".name", or "[na.me]" where the name
// would not be read back.
func step(name string) string {
	if name == "" || strings.ContainsAny(name, ".[]") {
		return "[" + name + "]"
	}
	return "." + name
}

// published turns a path of the internal form of a CRD, which errors of
// validation use, into one of the published form: what all versions agree on
// stands in the former only once, above them. Names in brackets become fields.
func published(path string) string {
	for _, f := range [...][2]string{
		{"spec.validation", "spec.versions[0].schema"},
		{"spec.subresources", "spec.versions[0].subresources"},
		{"spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"},
		{"spec.selectableFields", "spec.versions[0].selectableFields"},
		{"spec.version", "spec.versions[0].name"},
	} {
		rest, found := strings.CutPrefix(path, f[0])
		if found && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			path = f[1] + rest
			break
		}
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(path, "[")
		out.WriteString(before)
		name, rest, closed := strings.Cut(after, "]")
		if !found || !closed {
			out.WriteString(path[len(before):])
			return out.String()
		}
		if _, err := strconv.Atoi(name); err == nil {
			out.WriteString("[" + name + "]")
		} else {
			out.WriteString(step(name))
		}
		path = rest
	}
}

// lineOf returns the line of the field at path, or of the last one on the way
// that exists: a missing field is reported where it should stand.
func lineOf(root *yaml.Node, path string) int {
	if root = resolve(root); root == nil {
		return 0
	}
	if path == "" {
		return root.Line
	}
	line, _ := find(root, "."+path, 0)
	return line
}

// find goes down from n along the rest of a path and returns the line it came
// to and how many steps it took. Names can hold the characters that separate
// them, so every name that fits is tried and the one that leads furthest wins.
func find(n *yaml.Node, rest string, line int) (found, steps int) {
	if n = resolve(n); line == 0 {
		line = n.Line
	}
	if rest == "" || n.Kind == yaml.ScalarNode {
		return line, 0
	}
	found = line
	try := func(value *yaml.Node, after string, at int) {
		if l, s := find(value, after, at); s+1 > steps {
			found, steps = l, s+1
		}
	}
	if n.Kind == yaml.SequenceNode {
		if i, after, ok := cutIndex(rest); ok && i < len(n.Content) {
			try(n.Content[i], after, n.Content[i].Line)
		}
		return found, steps
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		if after, ok := cutName(rest, key.Value); ok && key.Kind == yaml.ScalarNode {
			try(n.Content[i+1], after, key.Line)
		}
	}
	return found, steps
}

// cutName takes ".name" or "[name]" off a path.
func cutName(path, name string) (rest string, found bool) {
	if rest, found = strings.CutPrefix(path, "["); found {
		if rest, found = strings.CutPrefix(rest, name); found {
			return strings.CutPrefix(rest, "]")
		}
		return "", false
	}
	if rest, found = strings.CutPrefix(path, "."); found {
		rest, found = strings.CutPrefix(rest, name)
	}
	return rest, found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// cutIndex takes "[index]" off a path.
func cutIndex(path string) (index int, rest string, found bool) {
	path, found = strings.CutPrefix(path, "[")
	if !found {
		return 0, "", false
	}
	digits, rest, found := strings.Cut(path, "]")
	index, err := strconv.Atoi(digits)
	return index, rest, found && err == nil && index >= 0
}
