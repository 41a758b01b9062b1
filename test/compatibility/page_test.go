package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrograms: every program has a script with steps, and every script is a program's.
func TestPrograms(t *testing.T) {
	t.Parallel()
	scripts := map[string]bool{}
	files, err := filepath.Glob(filepath.Join("programs", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		scripts[filepath.Base(file)] = false
	}
	for _, p := range programs() {
		if _, err := choose(strings.Join(append(p.uses, p.name), ",")); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		steps, err := p.steps(root)
		if err != nil {
			t.Error(err)
		}
		if len(steps) < 3 {
			t.Errorf("%s: its script has %d steps: %q", p.name, len(steps), steps)
		}
		for _, step := range steps {
			if !strings.HasSuffix(step, ".") {
				t.Errorf("%s: the step %q is no sentence", p.name, step)
			}
		}
		scripts[filepath.Base(p.file(root))] = true
	}
	for script, used := range scripts {
		if !used {
			t.Errorf("no program has the script %s", script)
		}
	}
}

// TestPageIsNew: docs/compatibility.md was written since the programs, their versions
// and the steps of their scripts are what they are, and all of them passed.
func TestPageIsNew(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, about, _ := strings.Cut(string(page), "- Server: ")
	server, rest, _ := strings.Cut(about, ".\n- Run on ")
	date, _, _ := strings.Cut(rest, ".\n")
	var want []result
	for _, p := range programs() {
		steps, err := p.steps(root)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, result{program: p, steps: steps})
	}
	if string(page) != render(description{server: server, date: date}, want) {
		t.Error("docs/compatibility.md is not what `make compatibility` would write of the programs as they are: run it")
	}
}

// root is the folder of the repository.
var root = filepath.Join("..", "..")

func TestFailureIsOnThePage(t *testing.T) {
	t.Parallel()
	p := program{name: "fruit", title: "Fruit & Co", version: "v1.0.0", needs: "`--service a/b=HOST:PORT`"}
	page := render(description{}, []result{{program: p, steps: []string{"It grows.", "It falls."}, failure: "> fall\nit did not"}})
	for _, want := range []string{
		"| [Fruit & Co](#fruit--co) | v1.0.0  | **no** | `--service a/b=HOST:PORT` |", "1. It grows.\n2. It falls.\n", "it did not\n```",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}

func TestNoStepIsLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := program{name: "fruit"}
	if err := os.MkdirAll(filepath.Dir(p.file(dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.file(dir), []byte("# It grows.\nexec true\nstop 'here'\n# It falls.\nexec false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if steps, err := p.steps(dir); err == nil || !strings.Contains(err.Error(), "stop 'here'") {
		t.Errorf("the steps are %q, %v, want an error that names the command", steps, err)
	}
}

// TestOutcome: a script that fails, and one that cannot run here, are failures.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for text, failed := range map[string]bool{
		"exec true\n":       false,
		"! exec true\n":     true,
		"skip 'not here'\n": true,
		"start sleeper sleep 1000\nhalt sleeper\n":                            false,
		"start sleeper sleep 1000\n":                                          false,
		"start true true\nawait never false\n":                                true,
		"start speaker sh -c 'echo hi; exec sleep 1000'\nlogged speaker hi\n": false,
		"port A B\nawait ^[0-9] echo $A\n":                                    false,
	} {
		if err := perform(t, text); (err != nil) != failed {
			t.Errorf("%q: %v, want a failure: %v", text, err, failed)
		}
	}
}

// perform runs a script of its own.
func perform(t *testing.T, text string) error {
	t.Helper()
	dir := t.TempDir()
	l := &lab{root: dir, cache: dir}
	p := program{name: "fruit"}
	if err := os.MkdirAll(filepath.Dir(p.file(dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.file(dir), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return l.runScript(p, nil)
}
