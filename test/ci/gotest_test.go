// Package ci tests how the Makefile runs tests: on a module made for it, with
// tests that fail as tests do.
package ci

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	passes = `package shop

import "testing"

func TestPasses(*testing.T) {}
`
	// once fails when it is run for the first time.
	once = `package shop

import (
	"os"
	"testing"
)

func TestOnce(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		if _, err := os.Stat("state"); err != nil {
			t.Fatal("not yet", os.WriteFile("state", nil, 0o600))
		}
	})
}

func TestBeside(*testing.T) { println("beside it") }
`
	always = `package shop

import "testing"

func TestAlways(t *testing.T) { t.Fatal("as ever") }
`
	// around is what looks for leaks after all tests: run alone, nothing would leak.
	around = `package shop

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
	if _, err := os.Stat("state"); err != nil {
		_ = os.WriteFile("state", nil, 0o600)
		os.Exit(1)
	}
}

func TestPasses(*testing.T) {}
`
	// leaves ends the process, so that tests after it do not run.
	leaves = `package shop

import (
	"os"
	"testing"
)

func TestLeaves(t *testing.T) {
	if _, err := os.Stat("state"); err != nil {
		_ = os.WriteFile("state", nil, 0o600)
		os.Exit(1)
	}
}

func TestNeverRuns(*testing.T) {}
`
	panics = `package shop

import (
	"os"
	"testing"
)

func TestPanics(t *testing.T) {
	if _, err := os.Stat("state"); err != nil {
		_ = os.WriteFile("state", nil, 0o600)
		panic("once")
	}
}
`
	broken = `package shop

func TestBroken(*testing.T) {}
`
)

// TestMakeTest runs `make test` where tests fail once, always, and otherwise.
func TestMakeTest(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	if _, err := exec.LookPath("make"); err != nil {
		if os.Getenv("SAILPLANE_CI") != "" {
			t.Fatal("make is missing: install it")
		}
		t.Skip("make is missing")
	}
	tool := gotestsum(t, root)
	flakyOnce := "FLAKY: example.com/shop/once TestOnce (failed 1 of 2)"
	for name, test := range map[string]struct {
		packages map[string]string // by directory
		fails    bool
		says     []string
		last     string // line of the output, but for what make says itself
		reason   string
	}{
		"all pass": {
			packages: map[string]string{"a": passes, "test/b": passes},
			says:     []string{"DONE 1 tests"}, last: "no flaky tests",
			reason: "that there was none is said, too",
		},
		"one fails once": {
			packages: map[string]string{"a": passes, "once": once, "test/b": passes},
			says:     []string{"not yet", "beside it"}, last: flakyOnce,
			reason: "it is named last, after the phases that follow",
		},
		"fails once around": {
			packages: map[string]string{"a": passes, "test/once": once},
			last:     "FLAKY: example.com/shop/test/once TestOnce (failed 1 of 2)",
			reason:   "the module in test/ is run alike",
		},
		"one fails always": {
			packages: map[string]string{"a": always, "once": once, "test/b": passes}, fails: true,
			says: []string{"as ever", "example.com/shop/a TestAlways failed each of 3 times"}, last: flakyOnce,
			reason: "a flaky test does not hide one that fails",
		},
		"a package fails after its tests": {
			packages: map[string]string{"a": around, "once": once, "test/b": passes}, fails: true,
			says: []string{"example.com/shop/a failed outside of its tests"}, last: flakyOnce,
			reason: "no test failed that could be run again",
		},
		"a process ends early": {
			packages: map[string]string{"a": leaves, "test/b": passes}, fails: true,
			says: []string{"example.com/shop/a ended while tests ran"}, last: "no flaky tests",
			reason: "tests after it did not run",
		},
		"a panic": {
			packages: map[string]string{"a": panics, "test/b": passes}, fails: true,
			says: []string{"panic: once", "example.com/shop/a panicked"}, last: "no flaky tests",
			reason: "tests after it did not run",
		},
		"a package that does not build": {
			packages: map[string]string{"a": broken, "once": once, "test/b": passes}, fails: true,
			says: []string{"undefined: testing", "example.com/shop/a does not build"}, last: flakyOnce,
			reason: "it has no test that could fail",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, failed := makeTest(t, shop(t, root, tool, test.packages))
			if failed != test.fails {
				t.Errorf("failed: got %t, want %t (%s)\n%s", failed, test.fails, test.reason, out)
			}
			for _, s := range test.says {
				if !strings.Contains(out, s) {
					t.Errorf("no %q (%s) in\n%s", s, test.reason, out)
				}
			}
			lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(out), "\n"), func(line string) bool {
				return strings.HasPrefix(line, "make")
			})
			if last := lines[len(lines)-1]; last != test.last {
				t.Errorf("last line: got %q, want %q (%s)\n%s", last, test.last, test.reason, out)
			}
		})
	}
}

// gotestsum installs the version that the Makefile names, and returns its path.
func gotestsum(t *testing.T, root string) string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	version := regexp.MustCompile(`(?m)^GOTESTSUM_VERSION := (\S+)$`).FindSubmatch(makefile)
	if version == nil {
		t.Fatal("the Makefile names no GOTESTSUM_VERSION")
	}
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", "gotest.tools/gotestsum@"+string(version[1]))
	install.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", install.Args, err, out)
	}
	named := filepath.Join(dir, "gotestsum-"+string(version[1]))
	must(t, os.Rename(filepath.Join(dir, "gotestsum"), named))
	return named
}

// registry is the folder of the module that has tests of its own beside test.
const registry = "examples/clusterregistry"

// shop makes a repository like this one: the Makefile and what it runs, two modules
// with the packages given, and a third one whose test passes.
func shop(t *testing.T, root, tool string, packages map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"bin", "hack/gotest", "test", registry} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	must(t, os.Symlink(tool, filepath.Join(dir, "bin", filepath.Base(tool))))
	must(t, os.CopyFS(filepath.Join(dir, "hack", "gotest"), os.DirFS(filepath.Join(root, "hack", "gotest"))))
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	files := map[string]string{
		"Makefile":    string(makefile),
		"go.mod":      "module example.com/shop\n\ngo 1.26\n",
		"test/go.mod": "module example.com/shop/test\n\ngo 1.26\n",

		registry + "/go.mod":       "module example.com/shop/registry\n\ngo 1.26\n",
		registry + "/shop_test.go": passes,
	}
	for d, source := range packages {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
		files[d+"/shop_test.go"] = source
	}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// makeTest runs `make test` as CI does, without a C compiler and thus without the
// race detector.
func makeTest(t *testing.T, dir string) (out string, failed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "--keep-going", "test")
	cmd.Dir = dir
	for _, v := range os.Environ() {
		// This test may be run by make, and in CI.
		if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SAILPLANE_CI"}, name) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "CC=no-such-compiler", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(b), err != nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
