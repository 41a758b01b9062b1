package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// maxDocument is the size of the largest document. A server takes objects of up to
// 3 MiB, which are longer as YAML when they have many small values.
const maxDocument = 12 << 20

// document is where a document is in a file.
type document struct {
	file   string // for messages
	number int    // from 1, without empty ones
	offset int64
	length int
}

func (d document) String() string { return fmt.Sprintf("%s: document %d", d.file, d.number) }

// split calls a function with the documents of a stream. Lines that begin with
// "---" separate them.
func split(file string, r io.Reader, each func(document, []byte) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var text []byte
	d := document{file: file, number: 1}
	var at int64
	end := func() error {
		if d.length = len(text); !isEmpty(text) {
			if err := each(d, text); err != nil {
				return err
			}
			d.number++
		}
		text, d.offset = text[:0], at
		return nil
	}
	for begins := true; ; {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("%s: %w", file, err)
		}
		if begins && separates(line) {
			if err := end(); err != nil {
				return err
			}
			line = line[len("---"):]
			at += int64(len("---"))
			d.offset = at
		}
		at += int64(len(line))
		if text = append(text, line...); len(text) > maxDocument {
			return fmt.Errorf("%s is larger than %d MiB, and no server takes such an object: "+
				"do lines of \"---\" separate the documents?", d, maxDocument>>20)
		}
		if errors.Is(err, io.EOF) {
			return end()
		}
		begins = err == nil
	}
}

// separates tells whether a line begins another document.
// https://yaml.org/spec/1.2.2/#912-document-markers
func separates(line []byte) bool {
	rest, is := bytes.CutPrefix(line, []byte("---"))
	return is && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r' || rest[0] == '\n')
}

// isEmpty tells whether a document has nothing but comments.
func isEmpty(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// decode reads the object of a document.
func decode(d document, text []byte) (*unstructured.Unstructured, error) {
	j, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(j); err != nil {
		return nil, fmt.Errorf("%s is no object: %w", d, err)
	}
	switch {
	case u.IsList():
		return nil, fmt.Errorf("%s is a list: write a document for each object, as sailplane export does", d)
	case u.GetAPIVersion() == "":
		return nil, fmt.Errorf("%s: apiVersion is missing", d)
	case u.GetName() == "":
		return nil, fmt.Errorf("%s: metadata.name is missing", d)
	}
	return u, nil
}
