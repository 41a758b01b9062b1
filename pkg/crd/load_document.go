package crd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// document is a part of a file between two separators, and what came of it.
type document struct {
	file   string
	before int // lines of the file before the document
	data   []byte

	definitions []definition
	others      []string
	problems    []error
}

// problem reports what is wrong in a line, with the field at path or all of it.
func (d *document) problem(line int, path, message string) {
	where := fmt.Sprintf("%s: line %d: ", d.file, d.before+line)
	if path != "" {
		where += path + ": "
	}
	d.problems = append(d.problems, errors.New(where+message))
}

// split cuts a file before each "---", so that a broken document leaves the
// others readable.
func split(file string, data []byte) []*document {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	all := []*document{{file: file, data: data[:0]}}
	offset, line := 0, 0
	for text := range bytes.Lines(data) {
		if rest, found := bytes.CutPrefix(text, []byte("---")); found && (len(rest) == 0 || unicode.IsSpace(rune(rest[0]))) {
			all = append(all, &document{file: file, before: line, data: data[offset:offset]})
		}
		last := all[len(all)-1]
		last.data = last.data[:len(last.data)+len(text)]
		offset, line = offset+len(text), line+1
	}
	return all
}

// objects parses the document and returns its objects, those of lists one by one.
func (d *document) objects() (all []*object) {
	decoder := yaml.NewDecoder(bytes.NewReader(d.data))
	for {
		var parsed yaml.Node
		switch err := decoder.Decode(&parsed); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			d.syntaxProblem(strings.TrimPrefix(err.Error(), "yaml: "))
			return all // the parser does not know where to go on
		}
		all = append(all, d.flatten(parsed.Content[0])...)
	}
}

// syntaxProblem reports what the YAML parser says.
func (d *document) syntaxProblem(message string) {
	line := 1
	if n, _ := fmt.Sscanf(message, "line %d:", &line); n == 1 {
		_, message, _ = strings.Cut(message, ": ")
	}
	if strings.HasPrefix(message, "did not find expected") {
		// Here the parser means the line where the broken block begins. Its
		// predecessor, which kubectl uses, means the line before the mistake.
		_, err := sigsyaml.YAMLToJSON(d.data)
		if n, _ := fmt.Sscanf(fmt.Sprint(err), "yaml: line %d:", &line); n == 1 {
			line++
		}
	}
	if bytes.Contains(d.data, []byte("{{")) {
		message += ` (a template, by its "{{": render it first)`
	}
	d.problem(line, "", message)
}

// header is what tells objects apart.
type header struct {
	APIVersion string    `yaml:"apiVersion"`
	Kind       string    `yaml:"kind"`
	Items      yaml.Node `yaml:"items"`
}

// flatten returns the object that root is, or those of the list that it is.
func (d *document) flatten(root *yaml.Node) (all []*object) {
	if root.ShortTag() == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		d.problem(root.Line, "", "expected an object with apiVersion and kind")
		return nil
	}
	o := &object{document: d, root: root, lines: map[string]int{}, fields: map[reflect.Type]map[string]reflect.Type{}}
	_ = root.Decode(&o.header) // what is wrong is found when all of it is decoded
	if o.Kind != "List" && o.Kind != "CustomResourceDefinitionList" {
		return []*object{o}
	}
	if o.Items.Kind != yaml.SequenceNode && o.Items.ShortTag() != "!!null" {
		d.problem(o.Items.Line, "items", "expected a list")
	}
	for _, item := range o.Items.Content {
		all = append(all, d.flatten(item)...)
	}
	return all
}

// decode decodes the CRDs, and notes where objects of other APIs are.
func (d *document) decode() {
	for i, o := range d.objects() {
		group, _, _ := strings.Cut(o.APIVersion, "/")
		if o.Kind != "" && o.Kind != "CustomResourceDefinition" && o.APIVersion != "" && group != apiextensionsv1.GroupName {
			d.others = append(d.others, fmt.Sprintf("%s: line %d: %s", d.file, d.before+o.root.Line, o.Kind))
			continue
		}
		problems := len(d.problems)
		found := definition{source: d, index: i}
		found.name, found.body = o.definition()
		found.line = d.before + o.line("metadata.name")
		if len(d.problems) == problems {
			d.definitions = append(d.definitions, found)
		}
	}
}
