package manifest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// Stream is a sink that writes documents one after the other.
type Stream struct {
	to    *bufio.Writer
	begun bool
}

// NewStream returns a sink that writes to a writer.
func NewStream(to io.Writer) *Stream { return &Stream{to: bufio.NewWriterSize(to, 64<<10)} }

// Add implements [Sink].
func (s *Stream) Add(_ served.Resource, _ *unstructured.Unstructured, text []byte) error {
	if s.begun {
		if _, err := s.to.WriteString("---\n"); err != nil {
			return err
		}
	}
	s.begun = true
	_, err := s.to.Write(text)
	return err
}

// Commit implements [Sink].
func (s *Stream) Commit() error { return s.to.Flush() }

// Abort implements [Sink]. What was written stays.
func (s *Stream) Abort() { _ = s.to.Flush() }

// File is a sink that makes a file, whole or not at all.
type File struct {
	*Stream
	path string
	f    *os.File
}

// NewFile returns a sink that makes a file, which only its owner can read: it has
// Secrets. Something that is there and no file, such as a pipe, is written to.
func NewFile(path string) (Sink, error) {
	if at, err := os.Stat(path); err == nil && !at.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("--output: %w", err)
		}
		return NewStream(f), nil // closed at the end of the process
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return &File{Stream: NewStream(f), path: path, f: f}, nil
}

// Commit implements [Sink].
func (f *File) Commit() error {
	err := f.Stream.Commit()
	if err == nil {
		err = f.f.Sync()
	}
	if err = errors.Join(err, f.f.Close()); err == nil {
		err = os.Rename(f.f.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

// Abort implements [Sink].
func (f *File) Abort() {
	_ = f.f.Close()
	_ = os.Remove(f.f.Name()) // after Commit it is gone
}
