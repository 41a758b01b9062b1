package crd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// definition is one CRD as a file gives it: strictly decoded, valid by itself,
// and ready to be sent.
type definition struct {
	name string // metadata.name
	body []byte // JSON to apply, without the fields that belong to the server

	// Its place in the files, for errors of the server. The parsed form takes ten
	// times the file's size: the file is parsed again if needed.
	source *document
	index  int // among the objects of source
	line   int
}

// problem says what is wrong with the field at path, with its line.
func (d definition) problem(path, message string) error {
	source := *d.source
	o := source.objects()[d.index]
	o.read(o.root, spec.Schema{}, "")
	o.problem(path, message)
	return errors.Join(source.problems...)
}

// load reads the CRDs in all *.yaml, *.yml and *.json files of fsys, in lexical
// order. Its error joins everything that is wrong in any of them, each as
// `file: line N: field: problem`. CEL rules are left to the server, which
// compiles them when it stores the CRD. Objects of other APIs, which projects
// keep beside their CRDs, are left out and listed in others.
func load(fsys fs.FS) (definitions []definition, others []string, err error) {
	documents, err := documentsIn(fsys)
	if err != nil {
		return nil, nil, err
	}
	var problems []error
	first := map[string]definition{}
	for _, d := range documents {
		for i, o := range d.objects() {
			if o.isOther() {
				others = append(others, fmt.Sprintf("%s: line %d: %s", d.file, d.before+o.root.Line, o.Kind))
				continue
			}
			name, body := o.definition()
			if other, seen := first[name]; seen && name != "" {
				o.problem("metadata.name", fmt.Sprintf("%s is already defined in %s: line %d", name, other.source.file, other.line))
			}
			first[name] = definition{name: name, body: body, source: d, index: i, line: d.before + o.line("metadata.name")}
			definitions = append(definitions, first[name])
		}
		problems = append(problems, d.problems...)
	}
	if len(problems) > 0 {
		return nil, nil, errors.Join(problems...)
	}
	if len(definitions) == 0 && len(others) > 0 {
		return nil, nil, fmt.Errorf("no CustomResourceDefinition in any file, only: %s", strings.Join(others, ", "))
	}
	return definitions, others, nil
}

// documentsIn returns the documents of all files that can hold CRDs.
func documentsIn(fsys fs.FS) (all []*document, err error) {
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		base, extension := path.Base(name), path.Ext(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(base, ".."):
			// A mounted ConfigMap has its files twice: in a directory like this,
			// and as links to them.
			return fs.SkipDir
		case entry.IsDir() || base == "kustomization"+extension || !slices.Contains([]string{".yaml", ".yml", ".json"}, extension):
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		all = append(all, split(name, data)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read CRDs: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("found no *.yaml, *.yml or *.json file with CRDs: check the directory")
	}
	return all, nil
}

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
	start := 0
	for _, next := range append(regexp.MustCompile(`(?m)\n---(?:[ \t\r]|$)`).FindAllIndex(data, -1), []int{len(data)}) {
		all = append(all, &document{file: file, before: bytes.Count(data[:start], []byte("\n")), data: data[start:next[0]]})
		start = next[0]
	}
	return all
}

// decode returns the values in data up to an error, which is io.EOF behind the last.
func decode[T any](data []byte) (all []T, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var value T
		if err := decoder.Decode(&value); err != nil {
			return all, err
		}
		all = append(all, value)
	}
}

// objects returns the objects of the document, those of lists one by one.
func (d *document) objects() (all []*object) {
	roots, err := decode[yaml.Node](d.data)
	if !errors.Is(err, io.EOF) {
		undecodable[yaml.Node](d, err)
	}
	for _, root := range roots {
		all = append(all, d.flatten(root.Content[0])...)
	}
	return all
}

// undecodable reports what the YAML library says. The library gives no line, or
// the first of the broken block: here it is the first line with which decoding
// into T fails the same way.
func undecodable[T any](d *document, err error) {
	lines := bytes.SplitAfter(d.data, []byte("\n"))
	line := 1 + sort.Search(len(lines)-1, func(i int) bool {
		_, found := decode[T](bytes.Join(lines[:i+1], nil))
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
