package main

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// below are the files below a directory.
func below(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		all = append(all, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// write makes a file.
func write(t *testing.T, content string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestExportDirectory has a file for each object, and keeps the directory up to date.
func TestExportDirectory(t *testing.T) {
	a, b := startPlane(t), startPlane(t)
	a.apply(t, garden+configMaps(2, "first"))
	dir := filepath.Join(t.TempDir(), "objects") + "/"
	a.export(t, "--output", dir)
	got := below(t, dir)
	for _, want := range []string{
		".sailplane-export", "core/namespaces/garden.yaml", "core/secrets/garden/keys.yaml", "core/configmaps/default/c-01.yaml",
		"example.com/plants/garden/rose.yaml", "rbac.authorization.k8s.io/clusterroles/system%3A%47ardener.yaml",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing:\n%s", want, strings.Join(got, "\n"))
		}
	}
	secret := filepath.Join(dir, "core", "secrets", "garden", "keys.yaml")
	if s, err := os.Stat(secret); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("the Secret's file: %v, %v", s.Mode(), err)
	}

	// What stays the same is not touched, what is gone is removed, and other files stay.
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(secret, old, old); err != nil {
		t.Fatal(err)
	}
	foreign := write(t, "# mine", dir, "core", "configmaps", "default", "mine.yaml")
	a.apply(t, strings.Replace(configMaps(2, "second"), "c-00", "c-02", 1), "--on-conflict", "replace")
	if err := a.client.CoreV1().ConfigMaps("garden").Delete(t.Context(), "notes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.export(t, "--output", dir)
	if s, err := os.Stat(secret); err != nil || !s.ModTime().Equal(old) {
		t.Errorf("an unchanged file was written at %v: %v", s.ModTime(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "core", "configmaps", "garden")); !os.IsNotExist(err) {
		t.Errorf("the directory of an object that is gone: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "core", "configmaps", "default", "c-01.yaml")); err != nil || !strings.Contains(string(text), "second") {
		t.Errorf("a changed object: %s, %v", text, err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file that no export wrote: %v", err)
	}

	// An import puts all of it in order.
	if out, err := b.run(t.Context(), "", io.Discard, "import", "-f", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before, _ := a.export(t)
	if after, _ := b.export(t); after != before {
		t.Errorf("imported:\n%s\nexported:\n%s", after, before)
	}
}

// TestExportDirectoryInterrupted knows the files of an export that did not end.
func TestExportDirectoryInterrupted(t *testing.T) {
	p := startPlane(t)
	p.apply(t, configMaps(3, "first"))
	dir := t.TempDir()
	args := []string{"export", "--output", dir, "--page-size", "1", "--resources", "configmaps", "--namespace", "default"}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.run(ctx, "", &during{do: cancel}, args...)
	if err == nil || err.Error() != "interrupted: the export is not complete, run it again" {
		t.Fatalf("interrupted: %v", err)
	}
	if got := below(t, dir); !slices.Equal(got, []string{".sailplane-export", "core/configmaps/default/c-00.yaml"}) {
		t.Errorf("interrupted, it has written %q", got)
	}
	if err := p.client.CoreV1().ConfigMaps("default").Delete(t.Context(), "c-00", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.run(t.Context(), "", io.Discard, args...); err != nil {
		t.Fatal(err)
	}
	if got := below(t, filepath.Join(dir, "core", "configmaps", "default")); slices.Contains(got, "c-00.yaml") || !slices.Contains(got, "c-02.yaml") {
		t.Errorf("run again, it has written %q", got)
	}
}

// TestExportDirectoryRefuses leaves directories alone that have something else.
func TestExportDirectoryRefuses(t *testing.T) {
	p := startPlane(t)
	p.apply(t, configMaps(1, "first"))
	cases := map[string]struct {
		file, content string
		args          []string
		want          string // "": it is not refused
	}{
		"something else":      {"README.md", "mine", nil, "it has README.md, and no .sailplane-export of an earlier export"},
		"a repository":        {".git/HEAD", "ref: refs/heads/main", nil, ""},
		"another selection":   {".sailplane-export", "# Selection: --namespace a\n", nil, "it has an export of --namespace a, whose files an export of everything would remove"},
		"the same selection":  {".sailplane-export", "# Selection: --namespace a\n", []string{"--namespace", "a"}, ""},
		"a listing that lies": {".sailplane-export", "../outside.yaml\n", nil, `.sailplane-export names "../outside.yaml", which is no file of an export`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, c.content, dir, filepath.FromSlash(c.file))
			_, err := p.run(t.Context(), "", io.Discard, append([]string{"export", "--output", dir}, c.args...)...)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if c.want != "" && len(below(t, dir)) != 1 {
				t.Errorf("the directory has %q", below(t, dir))
			}
		})
	}
	t.Run("a file in the way", func(t *testing.T) {
		dir := t.TempDir()
		p.export(t, "--output", dir, "--resources", "secrets")
		file := write(t, "mine", dir, "core", "configmaps", "default", "c-00.yaml")
		_, err := p.run(t.Context(), "", io.Discard, "export", "--output", dir, "--resources", "configmaps")
		if err == nil || !strings.Contains(err.Error(), "name another directory") {
			t.Errorf("another selection: %v", err)
		}
		write(t, "# Selection: --resources configmaps\n", dir, ".sailplane-export")
		_, err = p.run(t.Context(), "", io.Discard, "export", "--output", dir, "--resources", "configmaps")
		if err == nil || !strings.Contains(err.Error(), "c-00.yaml is there, and no earlier export wrote it") {
			t.Errorf("a file in the way: %v", err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
			t.Errorf("the file has %q: %v", text, err)
		}
	})
}

// TestExportFile makes a file whole or not at all.
func TestExportFile(t *testing.T) {
	p := startPlane(t)
	p.apply(t, configMaps(1, "first"))
	dir := t.TempDir()
	file := write(t, "as it was", dir, "all.yaml")
	if _, err := p.run(t.Context(), "", io.Discard, "export", "--output", file, "--revision", "1000000"); err == nil {
		t.Error("no error")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "as it was" || len(below(t, dir)) != 1 {
		t.Errorf("after an error: %q, %v, files %q", text, err, below(t, dir))
	}
	p.export(t, "--output", file)
	want, _ := p.export(t)
	if text, err := os.ReadFile(file); err != nil || string(text) != want || len(below(t, dir)) != 1 {
		t.Errorf("the file has %q, want %q: %v, files %q", text, want, err, below(t, dir))
	}
}
