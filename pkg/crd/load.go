package crd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
)

// definition is one CRD as a file gives it: strictly decoded, valid by itself,
// and ready to be sent.
type definition struct {
	crd  string // metadata.name
	body []byte // JSON to apply, without the fields that belong to the server

	// Where it stands, for what the server has to say about it. The nodes
	// themselves take ten times the file's size: they are parsed again if needed.
	source chunk
	index  int // among the objects of source
	line   int
}

// name is the name of the CRD, such as widgets.example.com.
func (d definition) name() string { return d.crd }

// problem says what is wrong with the field at path, with its line.
func (d definition) problem(path, message string) error {
	roots, _ := d.source.objects()
	if d.index >= len(roots) {
		return d.source.problem(0, path, message)
	}
	return d.source.problem(lineOf(roots[d.index], path), path, message)
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
	var all []chunk
	var unreadable []error
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			unreadable = append(unreadable, fmt.Errorf("read CRDs: %w", err))
			continue
		}
		all = append(all, split(name, data)...)
	}

	// Documents are decoded side by side: parsing is most of the work, and all
	// CRDs of a project often come in one file.
	results := make([][]definition, len(all))
	skipped := make([][]string, len(all))
	failures := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, c := range all {
		group.Go(func() error {
			results[i], skipped[i], failures[i] = c.definitions()
			return nil
		})
	}
	_ = group.Wait() // failures has the errors
	others = slices.Concat(skipped...)
	definitions, err = unique(results, append(failures, unreadable...))
	if err == nil && len(definitions) == 0 && len(others) > 0 {
		err = fmt.Errorf("no CustomResourceDefinition in any file, only: %s", strings.Join(others, ", "))
	}
	return definitions, others, err
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
			return nil
		}
		switch path.Ext(name) {
		case ".yaml", ".yml", ".json":
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

// unique puts the definitions of all chunks together.
func unique(results [][]definition, failures []error) ([]definition, error) {
	var definitions []definition
	first := map[string]definition{}
	for i := range results {
		for _, d := range results[i] {
			other, seen := first[d.crd]
			if seen {
				failures[i] = errors.Join(failures[i], d.source.problem(d.line-d.source.before, "metadata.name",
					fmt.Sprintf("%s is defined already in %s: line %d", d.crd, other.source.file, other.line)))
				continue
			}
			first[d.crd] = d
			definitions = append(definitions, d)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return definitions, nil
}

// chunk is a part of a file between two document separators.
type chunk struct {
	file   string
	before int // lines of the file before the chunk
	data   []byte
}

// problem is an error about a line of the chunk; line 0 is one nobody knows.
func (c chunk) problem(line int, path, message string) error {
	where := c.file
	if line > 0 {
		where = fmt.Sprintf("%s: line %d", where, c.before+line)
	}
	if path != "" {
		where += ": " + path
	}
	return fmt.Errorf("%s: %s", where, message)
}

// split cuts a file before each document separator.
func split(file string, data []byte) []chunk {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var chunks []chunk
	start, before, line := 0, 0, 0
	for offset := 0; offset < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
			next = offset + i + 1
		}
		if offset > start && isSeparator(data[offset:next]) {
			chunks = append(chunks, chunk{file: file, before: before, data: data[start:offset]})
			start, before = offset, line
		}
		offset = next
	}
	return append(chunks, chunk{file: file, before: before, data: data[start:]})
}

// isSeparator tells whether a line starts a document: "---" by itself or
// followed by content or a comment.
func isSeparator(line []byte) bool {
	rest, found := bytes.CutPrefix(line, []byte("---"))
	return found && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// definitions decodes the CRDs of the chunk, and says where objects of other APIs are.
func (c chunk) definitions() (all []definition, others []string, err error) {
	roots, err := c.objects()
	errs := []error{err}
	for i, root := range roots {
		if kind, ok := foreign(root); ok {
			others = append(others, fmt.Sprintf("%s: line %d: %s", c.file, c.before+root.Line, kind))
			continue
		}
		d, err := c.definition(root)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d.source, d.index, d.line = c, i, c.before+lineOf(root, "metadata.name")
		all = append(all, d)
	}
	return all, others, errors.Join(errs...)
}

// definition decodes and checks one CRD.
func (c chunk) definition(root *yaml.Node) (definition, error) {
	if err := c.checkKind(root); err != nil {
		return definition{}, err
	}
	e := &encoder{chunk: c}
	e.value(root, crdShape(), 0)
	if err := errors.Join(e.problems...); err != nil {
		return definition{}, err
	}
	name, err := c.validate(root, e.out)
	return definition{crd: name, body: e.out}, err
}
