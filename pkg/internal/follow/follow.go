// Package follow rereads files that change while a plane runs.
package follow

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"
)

// Every is how soon a change of a file is noticed. Files are read, not watched:
// they are small, and a watch misses files that are mounted, linked or replaced, as
// tokens and certificates in containers are.
const Every = time.Second

// Retry is the pause before content that could not be used is tried again although
// the file has not changed: what else it depends on may have.
const Retry = 10 * time.Second

// Source is a file that is read when a plane starts and again when it changes.
type Source struct {
	// What names the file in errors: "token file".
	What, File string
	// Read returns the content, or why it must not be used. Nil: os.ReadFile.
	Read func(file string) ([]byte, error)
	// Use puts content into effect, or returns why it cannot; the context is that of
	// the plane's life.
	Use func(ctx context.Context, content []byte) error
}

// Name names the file in errors. Parts of a kind differ in it.
func (s Source) Name() string { return s.What + " " + s.File }

// Content reads the file.
func (s Source) Content() ([]byte, error) {
	if s.Read == nil {
		return os.ReadFile(s.File)
	}
	return s.Read(s.File)
}

// Parse is how Build checks a file: it returns what parse makes of the content, or an
// error that names the file and the field of the part that has it, "field ConfigFile".
func Parse[T any](field string, s Source, parse func(content []byte) (T, error)) (T, error) {
	content, err := s.Content()
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", field, err) // names the file
	}
	parsed, err := parse(content)
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", field, s.File, err)
	}
	return parsed, err
}

// File is a source in a running plane, for one goroutine.
type File struct {
	Source

	used, refused []byte    // content in effect, and content that could not be used
	again         time.Time // when to try the refused content
	told          string    // the error that was logged
}

// Begin puts the first content into effect, unless there is some.
func (f *File) Begin(ctx context.Context) error {
	if f.used != nil {
		return nil
	}
	content, err := f.Content()
	if err != nil {
		return err
	}
	if err := f.Use(ctx, content); err != nil {
		return err
	}
	f.used = content
	return nil
}

// Begun sets the content that is in effect already, in place of Begin.
func (f *File) Begun(content []byte) { f.used = content }

// Run follows the file until the context ends. It returns nil.
func (f *File) Run(ctx context.Context) error {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			f.Look(ctx, now)
		}
	}
}

// Look puts new content into effect. Content that cannot be used is logged once,
// and changes nothing. Run calls Look again and again.
func (f *File) Look(ctx context.Context, now time.Time) {
	content, err := f.Content()
	if err != nil {
		f.tell(ctx, err)
		return
	}
	if bytes.Equal(content, f.used) {
		f.refused, f.told = nil, ""
		return
	}
	if bytes.Equal(content, f.refused) && now.Before(f.again) {
		return
	}
	if err := f.Use(ctx, content); err != nil {
		f.refused, f.again = content, now.Add(Retry)
		f.tell(ctx, err)
		return
	}
	f.used, f.refused, f.told = content, nil, ""
	klog.FromContext(ctx).Info("Loaded a changed file", "what", f.What, "file", f.File)
}

// tell logs why the file is not used, unless it logged the same last time.
func (f *File) tell(ctx context.Context, err error) {
	if ctx.Err() == nil && err.Error() != f.told {
		f.told = err.Error()
		klog.FromContext(ctx).Error(err, "Could not load a changed file, kept its previous content", "what", f.What, "file", f.File)
	}
}
