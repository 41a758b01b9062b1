package migration

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/test/program"
)

// suites are the packages of the project that have tests.
var suites = []string{"example.com/guestbook/internal/controller", "example.com/guestbook/internal/webhook/v1"}

// TestCommands runs every command of the guide and of the project's README: the
// specs pass on planetest, and on the binaries that envtest starts.
func TestCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := program.Sailplane(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(),
		"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"),
		// The build is shared with the Makefile's tests, and `make lint` vets. No result is kept: what is
		// in another module changes it.
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -pgo=off -count=1 -vet=off", "GOWORK=off",
		// envtest gives up after 20 s, on a busy machine too.
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=2m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=2m",
		"KUBEBUILDER_ASSETS=") // a command sets it, or needs none
	kinds := map[string]bool{}
	for _, command := range commands(t) {
		kinds["planetest"] = kinds["planetest"] || !strings.Contains(command, "-tags envtest")
		kinds["envtest"] = kinds["envtest"] || strings.Contains(command, "-tags envtest")
		t.Run(command, func(t *testing.T) {
			run := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "bin/envtest", filepath.Join(dir, "assets")))
			run.Dir, run.Env = project(), env
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, suite := range suites {
				if !regexp.MustCompile(`(?m)^ok\s+` + regexp.QuoteMeta(suite) + `\s`).Match(out) {
					t.Errorf("the tests of %s were not run:\n%s", suite, out)
				}
			}
		})
	}
	if !kinds["planetest"] || !kinds["envtest"] {
		t.Errorf("the guide and the README have commands for %v: want both planetest and envtest", kinds)
	}
}

// TestGuideShowsTheProject holds the Go of the guide to the project's files.
func TestGuideShowsTheProject(t *testing.T) {
	t.Parallel()
	sources := map[string][]byte{}
	err := filepath.WalkDir(project(), func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		sources[name], err = os.ReadFile(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := blocks(t, guide(), "go")
	if len(all) == 0 {
		t.Error("the guide shows no Go")
	}
	for _, block := range all {
		found := false
		for _, source := range sources {
			found = found || bytes.Contains(source, []byte(block))
		}
		if !found {
			t.Errorf("no file of examples/kubebuilder has these lines of docs/envtest-migration.md:\n%s", block)
		}
	}
}

func root(path ...string) string {
	return filepath.Join(append([]string{"..", ".."}, path...)...)
}

func project() string { return root("examples", "kubebuilder") }

func guide() string { return root("docs", "envtest-migration.md") }

// commands are those of the console blocks, each once.
func commands(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, page := range []string{guide(), filepath.Join(project(), "README.md")} {
		for _, block := range blocks(t, page, "console") {
			for line := range strings.Lines(block) {
				command, found := strings.CutPrefix(strings.TrimSpace(line), "$ ")
				if found && !slices.Contains(all, command) {
					all = append(all, command)
				}
			}
		}
	}
	return all
}

// blocks are the blocks of a language in a page.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile("(?m)^```(sh|bash|shell)$").Match(text) {
		t.Errorf("%s: a block of sh is not run by this test: use console", page)
	}
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	return all
}
