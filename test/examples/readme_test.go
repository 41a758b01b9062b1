package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReadme does what the project's README and the pages about parts, configuration, deploying and exports
// say after `make run`: with the flags that the Makefile gives the server, but for
// the port.
func TestReadme(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "parts", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("docs/parts has %d pages: %v", len(pages), err)
	}
	for _, page := range []string{"README.md", "docs/deploying.md", "docs/configuration.md", "docs/storage/export.md"} {
		pages = append(pages, filepath.Join(root, filepath.FromSlash(page)))
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) { follow(t, root, page) })
	}
}

// follow runs the commands of a page against a server.
func follow(t *testing.T, root, page string) {
	t.Helper()
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	commands, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "```console") != (len(commands) > 2) {
		t.Fatalf("%s has %d commands: is it read right?", page, len(commands))
	}
	if len(commands) == 0 {
		return
	}
	s := prepare(t)
	if err := os.Symlink(filepath.Join(root, "config"), filepath.Join(s.dir, "config")); err != nil {
		t.Fatal(err)
	}
	s.launch(serverOf(t, root), filepath.Join(s.dir, ".sailplane", "admin.kubeconfig"))
	s.follow(commands)
	s.stop()
}

// serverOf is the command `make run` runs, listening at a free port.
func serverOf(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	dry := exec.Command("make", "--no-print-directory", "--dry-run", "run")
	dry.Dir = root
	out, err := dry.Output()
	if err != nil {
		t.Fatalf("make --dry-run run: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	words := strings.Fields(lines[len(lines)-1])
	at := slices.Index(words, "bin/sailplane")
	if at < 0 {
		t.Fatalf("make run ends with %q, not with bin/sailplane", lines[len(lines)-1])
	}
	return exec.Command(filepath.Join(binaries, "sailplane"), append(words[at+1:], "--listen=127.0.0.1:0")...)
}
