package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every program has a script that says what it shows.
func TestSteps(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs() {
		steps, err := p.steps(root)
		if err != nil {
			t.Error(err)
		}
		if len(steps) == 0 {
			t.Errorf("%s has no steps", p.name)
		}
		for _, step := range steps {
			if !strings.HasSuffix(step, ".") {
				t.Errorf("%s: the step %q is no sentence", p.name, step)
			}
		}
	}
}

// A script that testscript would end before its end is no proof of anything.
func TestStop(t *testing.T) {
	root := t.TempDir()
	p := program{name: "fruit"}
	if err := os.MkdirAll(filepath.Dir(p.file(root)), 0o750); err != nil {
		t.Fatal(err)
	}
	text := "# It serves.\nserve\nstop fruit\n\n# It never comes here.\nfalse\n-- stop.txt --\nstop here\n"
	if err := os.WriteFile(p.file(root), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if steps, err := p.steps(root); err == nil {
		t.Errorf("the steps are %q, want an error", steps)
	}
	if err := os.WriteFile(p.file(root), []byte(strings.Replace(text, "\nstop", "\nend", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	steps, err := p.steps(root)
	if err != nil || len(steps) != 2 || steps[0] != "It serves." {
		t.Errorf("the steps are %q, %v", steps, err)
	}
}
