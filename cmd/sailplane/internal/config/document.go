package config

import (
	"bytes"
	_ "embed" // server.yaml
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Defaults is the file with every field, its default and what it means.
//
//go:embed server.yaml
var Defaults string

// maxNodes bounds a file: its values, and what its aliases repeat.
const maxNodes = 100_000

// Document is a configuration whose values know where they come from.
type Document struct {
	root   *yaml.Node
	origin map[*yaml.Node]string
	err    error // of the defaults
}

// New returns the document with the defaults.
func New() *Document {
	root, err := parse([]byte(Defaults))
	if err != nil { // a defect, which the tests of this package find
		return &Document{root: &yaml.Node{Kind: yaml.MappingNode}, err: fmt.Errorf("server.yaml of the program: %w", err)}
	}
	return &Document{root: root, origin: map[*yaml.Node]string{}}
}

// File adds the fields of a file.
func (d *Document) File(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return d.add(path, content)
}

func (d *Document) add(path string, content []byte) error {
	root, err := parse(content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if root == nil {
		return fmt.Errorf("%s is empty: begin it with apiVersion: %s and kind: %s", path, APIVersion, Kind)
	}
	if err := versioned(root); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	name(root, d.origin, func(n *yaml.Node) string { return fmt.Sprintf("%s:%d", path, n.Line) })
	return d.merge(d.root, root, nil)
}

// Set sets a field, such as "storage.url". The origin says who does.
func (d *Document) Set(field string, value any, origin string) error {
	leaf, err := encode(value)
	if err != nil {
		return fmt.Errorf("%s: %w", origin, err)
	}
	if leaf.Kind == yaml.SequenceNode && !slices.ContainsFunc(leaf.Content, func(n *yaml.Node) bool { return n.Kind != yaml.ScalarNode }) {
		leaf.Style = yaml.FlowStyle
	}
	parts := strings.Split(field, ".")
	slices.Reverse(parts)
	for _, part := range parts {
		leaf = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Tag: "!!str", Value: part}, leaf,
		}}
	}
	name(leaf, d.origin, func(*yaml.Node) string { return origin })
	return d.merge(d.root, leaf, nil)
}

// encode returns the value of a field, whose types have their names in json tags.
func encode(value any) (*yaml.Node, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	n := &yaml.Node{}
	return n, n.Encode(plain)
}

// Default changes the default of a field.
func (d *Document) Default(field string, value any) {
	d.err = errors.Join(d.err, d.Set(field, value, ""))
}

// At says where the value of a field comes from, as errors begin: "server.yaml:12:
// storage.url", or "--storage".
func (d *Document) At(field string) string {
	n := d.root
	for part := range strings.SplitSeq(field, ".") {
		if n = child(n, part); n == nil {
			return field
		}
	}
	return d.place(n, field)
}

// place names a value in an error.
func (d *Document) place(n *yaml.Node, field string) string {
	origin := d.origin[n]
	switch {
	case origin == "":
		return field
	case strings.HasPrefix(origin, "-") || strings.HasPrefix(origin, environment):
		return origin // the field says nothing to who gave a flag
	}
	return origin + ": " + field
}

// merge writes the fields of src over those of dst: mappings are joined, and
// everything else is replaced. A null leaves what was there.
func (d *Document) merge(dst, src *yaml.Node, path []string) error {
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(src.Content); i += 2 {
		key, value := src.Content[i], src.Content[i+1]
		field := append(slices.Clone(path), key.Value)
		if seen[key.Value] {
			errs = append(errs, fmt.Errorf("%s: given twice", d.place(key, strings.Join(field, "."))))
		}
		seen[key.Value] = true
		if value.Tag == "!!null" {
			continue
		}
		at := slices.IndexFunc(keys(dst), func(k *yaml.Node) bool { return k.Value == key.Value })
		switch {
		case at < 0:
			dst.Content = append(dst.Content, key, value)
		case value.Kind == yaml.MappingNode && dst.Content[2*at+1].Kind == yaml.MappingNode:
			errs = append(errs, d.merge(dst.Content[2*at+1], value, field))
		default:
			value.FootComment = dst.Content[2*at+1].FootComment
			dst.Content[2*at+1] = value
		}
	}
	return errors.Join(errs...)
}

// Write writes the document as a file, with a comment on every value that is no default.
func (d *Document) Write(to io.Writer) error {
	b := &bytes.Buffer{}
	e := yaml.NewEncoder(b)
	e.SetIndent(2)
	if err := e.Encode(d.annotated(d.root, New().root, "")); err != nil {
		return err
	}
	_, err := to.Write(spaced(b.Bytes()))
	return err
}

// spaced has an empty line before each field of the top level and its comment, which the encoder drops.
func spaced(text []byte) []byte {
	var out []byte
	var comment bool // whether the last line is one
	for line := range bytes.Lines(text) {
		if len(out) > 0 && line[0] != ' ' && !comment {
			out = append(out, '\n')
		}
		out, comment = append(out, line...), line[0] == '#'
	}
	return bytes.Replace(out, []byte("\n\nkind:"), []byte("\nkind:"), 1)
}

// annotated is a copy whose values say where they come from if they are not the
// defaults, and have no passwords. A list says it once.
func (d *Document) annotated(n, standard *yaml.Node, field string) *yaml.Node {
	out := *n
	out.Content = nil
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 0 {
			out.Content = append(out.Content, d.annotated(c, c, field))
			continue
		}
		key := n.Content[i-1].Value
		out.Content = append(out.Content, d.annotated(c, child(standard, key), strings.TrimPrefix(field+"."+key, ".")))
	}
	if field == "storage.url" && out.Kind == yaml.ScalarNode {
		out.Value = WithoutLogin(out.Value)
	}
	switch {
	case n.Kind == yaml.MappingNode || same(n, standard):
	case n.Kind == yaml.SequenceNode && n.Style != yaml.FlowStyle && len(out.Content) > 0:
		out.Content[0].HeadComment = "# " + d.origin[n] // the encoder would move it behind the list
	default:
		out.LineComment = d.origin[n]
	}
	return &out
}

// same tells whether two values are.
func same(a, b *yaml.Node) bool {
	if a == b {
		return true
	}
	return b != nil && a.Kind == b.Kind && a.Value == b.Value && slices.EqualFunc(a.Content, b.Content, same)
}

// parse returns the mapping of a file; nil if it is empty. Aliases are replaced by what they stand for.
func parse(content []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var file, more yaml.Node
	if err := decoder.Decode(&file); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: a second document: a file has one", more.Line)
	}
	left := maxNodes
	root, err := expand(file.Content[0], &left)
	if err != nil {
		return nil, err
	}
	if root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want fields, such as kind: %s", root.Line, Kind)
	}
	return root, nil
}

// expand copies a node without aliases.
func expand(n *yaml.Node, left *int) (*yaml.Node, error) {
	if *left--; *left < 0 {
		return nil, fmt.Errorf("line %d: more than %d values", n.Line, maxNodes)
	}
	if n.Kind == yaml.AliasNode {
		return expand(n.Alias, left)
	}
	out := *n
	out.Anchor, out.Content = "", make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		var err error
		if out.Content[i], err = expand(c, left); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// versioned says whether a file is of this kind.
func versioned(root *yaml.Node) error {
	for field, want := range map[string]string{"apiVersion": APIVersion, "kind": Kind} {
		n := child(root, field)
		if n == nil {
			return fmt.Errorf("%s is missing: begin the file with apiVersion: %s and kind: %s", field, APIVersion, Kind)
		}
		if n.Value != want {
			return fmt.Errorf("line %d: %s: found %q, want %s", n.Line, field, n.Value, want)
		}
	}
	return nil
}

// name gives every node of a tree an origin.
func name(n *yaml.Node, origins map[*yaml.Node]string, origin func(*yaml.Node) string) {
	origins[n] = origin(n)
	for _, c := range n.Content {
		name(c, origins, origin)
	}
}

// keys are those of a mapping.
func keys(n *yaml.Node) []*yaml.Node {
	var all []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		all = append(all, n.Content[i])
	}
	return all
}

// child is the value of a key; nil if there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i, k := range keys(n) {
		if k.Value == key {
			return n.Content[2*i+1]
		}
	}
	return nil
}

// WithoutLogin returns a storage's URL that can be shown: the part before an @ may be
// a password.
func WithoutLogin(url string) string {
	at := strings.LastIndex(url, "@")
	if at < 0 {
		return url
	}
	scheme, _, _ := strings.Cut(url[:at], ":")
	return scheme + ":xxxxx" + url[at:]
}
