package crd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"

	"go.yaml.in/yaml/v3"
)

// document is a part of a file between two separators.
type document struct {
	file     string
	before   int // lines of the file before the document
	data     []byte
	problems []error
}

// problem reports what is wrong in a line, with the field at path or all of it.
func (d *document) problem(line int, path, message string) {
	if path != "" {
		message = path + ": " + message
	}
	d.problems = append(d.problems, fmt.Errorf("%s: line %d: %s", d.file, d.before+line, message))
}

// split cuts a file before each "---", so that a broken document leaves the
// others readable.
func split(file string, data []byte) (all []*document) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	start := 0
	for _, next := range append(regexp.MustCompile(`(?m)\n---(?:[ \t\r]|$)`).FindAllIndex(data, -1), []int{len(data)}) {
		all = append(all, &document{file: file, before: bytes.Count(data[:start], []byte("\n")), data: data[start:next[0]]})
		start = next[0]
	}
	return all
}

// parse returns the values in data up to an error, which is io.EOF behind the last.
func parse(data []byte) (roots []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var root yaml.Node
		if err := decoder.Decode(&root); err != nil {
			return roots, err
		}
		roots = append(roots, root.Content[0])
	}
}

// objects returns the objects of the document, those of lists one by one.
func (d *document) objects() (all []*object) {
	roots, err := parse(d.data)
	if !errors.Is(err, io.EOF) {
		d.syntaxProblem(err)
	}
	for _, root := range roots {
		all = append(all, d.flatten(root)...)
	}
	return all
}

// syntaxProblem reports what the parser says. The parser gives no line, or the
// first of the broken block: here it is the first line with which parsing fails
// the same way.
func (d *document) syntaxProblem(err error) {
	lines := bytes.SplitAfter(d.data, []byte("\n"))
	line := 1 + sort.Search(len(lines)-1, func(i int) bool {
		_, found := parse(bytes.Join(lines[:i+1], nil))
		return found.Error() == err.Error()
	})
	message := regexp.MustCompile(`^yaml: (line \d+: )?`).ReplaceAllString(err.Error(), "")
	if bytes.Contains(d.data, []byte("{{")) {
		message += ` ("{{" looks like a template: render it first)`
	}
	d.problem(line, "", message)
}

// flatten returns the object that root is, or those of the list that it is.
func (d *document) flatten(root *yaml.Node) (all []*object) {
	o := &object{document: d, root: root, lines: map[string]int{}}
	switch {
	case root.ShortTag() == "!!null":
		return nil
	case root.Kind != yaml.MappingNode:
		d.problem(root.Line, "", "expected an object with apiVersion and kind")
		return nil
	}
	_ = root.Decode(o) // what is wrong is found when all of it is decoded
	if o.Kind != "List" && o.Kind != crdKind+"List" {
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
