package crd

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// definition is one CRD as a file gives it: strictly decoded, valid by itself,
// and ready to be sent.
type definition struct {
	name string // metadata.name
	body []byte // JSON to apply, without the fields that belong to the server

	// Where it stands, for what the server has to say about it. What was parsed
	// takes ten times the file's size: it is parsed again if needed.
	source *document
	index  int // among the objects of source
	line   int
}

// problem says what is wrong with the field at path, with its line.
func (d definition) problem(path, message string) error {
	source := &document{file: d.source.file, before: d.source.before, data: d.source.data}
	o := source.objects()[d.index]
	o.readCRD()
	o.problem(path, message)
	return errors.Join(source.problems...)
}

// load reads the CRDs in all *.yaml, *.yml and *.json files of fsys, in lexical
// order. Its error joins everything that is wrong in any of them, each as
// `file: line N: field: problem`. CEL rules are left to the server, which
// compiles them when it stores the CRD. Objects of other APIs, which projects
// keep beside their CRDs, are left out and listed in others.
func load(fsys fs.FS) (definitions []definition, others []string, err error) {
	names, err := manifests(fsys)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	first := map[string]definition{}
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("read CRDs: %w", err))
		}
		for _, d := range split(name, data) {
			d.decode()
			for _, found := range d.definitions {
				if other, seen := first[found.name]; seen {
					errs = append(errs, found.problem("metadata.name",
						fmt.Sprintf("%s is defined already in %s: line %d", found.name, other.source.file, other.line)))
				}
				first[found.name] = found
			}
			errs = append(errs, d.problems...)
			definitions, others = append(definitions, d.definitions...), append(others, d.others...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	if len(definitions) == 0 && len(others) > 0 {
		return nil, nil, fmt.Errorf("no CustomResourceDefinition in any file, only: %s", strings.Join(others, ", "))
	}
	return definitions, others, nil
}

// manifests lists the files to read.
func manifests(fsys fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), ".."):
			// A mounted ConfigMap has its files twice: in a directory like this,
			// and as links to them.
			return fs.SkipDir
		case entry.IsDir(), entry.Name() == "kustomization.yaml", entry.Name() == "kustomization.yml":
		case slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list files with CRDs: %w", err)
	}
	if len(names) == 0 {
		return nil, errors.New("no *.yaml, *.yml or *.json file with CRDs: check which directory is given")
	}
	return names, nil
}
