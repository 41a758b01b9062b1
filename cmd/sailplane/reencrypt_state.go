package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// tally counts objects by outcome.
type tally struct {
	Rewritten, Unchanged, Skipped, Failed int
}

func (t *tally) plus(o tally) {
	t.Rewritten += o.Rewritten
	t.Unchanged += o.Unchanged
	t.Skipped += o.Skipped
	t.Failed += o.Failed
}

func (t tally) total() int { return t.Rewritten + t.Unchanged + t.Skipped + t.Failed }

// String describes the outcomes. A dry run does not know which objects would be
// written.
func (t tally) String(dryRun bool) string {
	if dryRun {
		return fmt.Sprintf("%d objects: %d could be written, %d changed meanwhile, %d failed",
			t.total(), t.Rewritten+t.Unchanged, t.Skipped, t.Failed)
	}
	return fmt.Sprintf("%d objects: %d written, %d up to date, %d changed meanwhile, %d failed",
		t.total(), t.Rewritten, t.Unchanged, t.Skipped, t.Failed)
}

// progress is the progress of a run; it is kept in the file of --state, if there is
// one.
type progress struct {
	file string
	// Server is the server that has the objects.
	Server string `json:"server"`
	// Begun is when the first of the continued runs began.
	Begun time.Time `json:"begun"`
	// Done are the finished resources.
	Done map[string]tally `json:"done"`
	// Resource is the current one, Continue where its next page begins, and
	// Counted the outcomes of the pages before.
	Resource string `json:"resource,omitempty"`
	Continue string `json:"continue,omitempty"`
	Counted  tally  `json:"counted"`
}

// progressLasts is the maximum age of progress to continue. Later another key may
// be the first one, and finished objects would lack it.
const progressLasts = 24 * time.Hour

// load reads the file, if there is one, and has save write to it.
func (p *progress) load(file string) error {
	server, now := p.Server, p.Begun
	p.Begun, p.file = time.Time{}, file
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		p.Begun = now
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, p); err != nil {
		return fmt.Errorf("%s does not contain the progress of an earlier run: %w: name another file", file, err)
	}
	if p.Server != server {
		return fmt.Errorf("%s contains the progress for server %s, not for %s: name another file", file, p.Server, server)
	}
	if now.Sub(p.Begun) > progressLasts {
		return fmt.Errorf("%s is from a run that began at %s: the key may have changed since; delete the file to start over",
			file, p.Begun.Format(time.RFC3339))
	}
	if p.Done == nil {
		p.Done = map[string]tally{}
	}
	return nil
}

// position returns where to continue with a resource. After failures it starts
// again.
func (p *progress) position(resource string) (counted tally, next string) {
	if p.Resource != resource || p.Continue == "" || p.Counted.Failed > 0 {
		return tally{}, ""
	}
	return p.Counted, p.Continue
}

func (p *progress) at(resource, next string, counted tally) {
	p.Resource, p.Continue, p.Counted = resource, next, counted
}

func (p *progress) finish(resource string, counted tally) {
	p.Done[resource] = counted
	p.at("", "", tally{})
}

// save writes the file, whole or not at all.
func (p *progress) save() error {
	if p.file == "" {
		return nil
	}
	content, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p.file), filepath.Base(p.file)+".*")
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), p.file)
	}
	if err != nil {
		return fmt.Errorf("--state: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// remove removes the file when all resources are done.
func (p *progress) remove() error {
	if p.file == "" {
		return nil
	}
	if err := os.Remove(p.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--state: %w", err)
	}
	return nil
}
