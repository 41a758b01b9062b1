package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReplaced: a module is built although its go.mod names one that no registry has.
func TestReplaced(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	dir := t.TempDir()
	// Before Go 1.17 all of the graph is read, also what nothing imports.
	for name, text := range map[string]string{
		"go.mod": "module fruit.example/fruit\n\ngo 1.15\n\nrequire gone.example/util v0.1.0\n", "go.sum": "", "main.go": "package main\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := &lab{}
	build := []string{"build", "-C", dir, "-mod=readonly", "-o", filepath.Join(dir, "fruit")}
	if _, err := l.command(t.Context(), "go", append(build, ".")...); err == nil {
		t.Fatal("the module is built without the other")
	}
	modfile, err := module{replaced: map[string]string{"gone.example/util": ""}}.modfile(t.Context(), l, dir, filepath.Join(t.TempDir(), "mod"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.command(t.Context(), "go", append(build, "-modfile="+modfile, ".")...); err != nil {
		t.Error(err)
	}
}
