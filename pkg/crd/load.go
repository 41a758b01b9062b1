package crd

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

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
