package envtest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// program makes a file that stands for one.
func program(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, executable(name))
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestInstall(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "new", "assets")
	i := installation{program: program(t, from, "sailplane", "one"), dir: to, kubectl: program(t, from, "kubectl", "k")}
	var out, log bytes.Buffer
	for _, version := range []string{"one", "two"} { // the second replaces the first
		out.Reset()
		program(t, from, "other", version)
		if err := os.Rename(filepath.Join(from, executable("other")), i.program); err != nil {
			t.Fatal(err)
		}
		if err := i.run(&out, &log); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{apiServerName: version, etcdName: version, kubectlName: "k"} {
			if got := content(t, filepath.Join(to, executable(name))); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
	if out.String() != to+"\n" || log.Len() > 0 {
		t.Errorf("it prints %q and %q, want the folder alone", &out, &log)
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) != 3 {
		t.Errorf("the folder has %v (%v), want 3 files", entries, err)
	}
}

func TestInstallWithoutKubectl(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	i := installation{program: program(t, t.TempDir(), "sailplane", "s"), dir: t.TempDir()}
	var out, log bytes.Buffer
	if err := i.run(&out, &log); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(log.String(), "warning: no kubectl is on PATH") {
		t.Errorf("the log is %q, want a warning that there is no kubectl", &log)
	}
	i.kubectl = filepath.Join(i.dir, "absent")
	if err := i.run(&out, &log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a kubectl that does not exist: %v, want an error", err)
	}
}

// TestPlaceFallsBack copies where there are no links.
func TestPlaceFallsBack(t *testing.T) {
	dir := t.TempDir()
	from, to := program(t, dir, "a", "content"), filepath.Join(dir, "b")
	never := func(string, string) error { return errors.ErrUnsupported }
	if err := place(to, from, never, duplicate); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if content(t, to) != "content" || info.Mode().Perm()&0o100 == 0 && runtime.GOOS != "windows" {
		t.Errorf("the copy has mode %v, want a program with the content", info.Mode())
	}
	if err := place(filepath.Join(dir, "c"), from, never); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no way works: %v, want why", err)
	}
}
