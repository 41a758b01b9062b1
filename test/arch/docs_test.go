package arch

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxMainLines         = 60
	maxArchitectureLines = 220
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadmeShowsTheMinimalExample(t *testing.T) {
	_, rest, found := strings.Cut(readFile(t, "README.md"), "\n```go\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatal("README.md has no block of Go")
	}
	main := readFile(t, "examples/minimal/main.go")
	if block != main {
		t.Error("the first block of Go in README.md differs from examples/minimal/main.go: copy the file into it")
	}
	if n := strings.Count(main, "\n"); n > maxMainLines {
		t.Errorf("examples/minimal/main.go has %d lines: %d is the promise", n, maxMainLines)
	}
}

func TestArchitectureIsShort(t *testing.T) {
	if n := strings.Count(readFile(t, "docs/ARCHITECTURE.md"), "\n"); n > maxArchitectureLines {
		t.Errorf("docs/ARCHITECTURE.md has %d lines: %d is the limit", n, maxArchitectureLines)
	}
}

func TestArchitectureShowsEveryPackage(t *testing.T) {
	text := readFile(t, "docs/ARCHITECTURE.md")
	for _, pkg := range packages(t) {
		if below(pkg, "pkg") && !strings.Contains(text, "`"+pkg+"`") && !mentionsBelow(text, pkg) {
			t.Errorf("docs/ARCHITECTURE.md does not mention `%s`: give it a line on the map", pkg)
		}
	}
}

// mentionsBelow says whether a text mentions a parent of the package as "parent/...".
func mentionsBelow(text, pkg string) bool {
	for ; pkg != "."; pkg = path.Dir(pkg) {
		if strings.Contains(text, "`"+pkg+"/...`") {
			return true
		}
	}
	return false
}

func TestDecisionRecords(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "adr", "*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("docs/adr: %d records, %v", len(names), err)
	}
	numbered := regexp.MustCompile(`^\d{4}-[a-z0-9-]+\.md$`)
	numbers := map[string]string{}
	for _, name := range names {
		base := filepath.Base(name)
		if !numbered.MatchString(base) {
			t.Errorf("docs/adr/%s: name it NNNN-title.md", base)
			continue
		}
		if other, taken := numbers[base[:4]]; taken {
			t.Errorf("docs/adr/%s and %s have the same number", base, other)
		}
		numbers[base[:4]] = base
		text := readFile(t, "docs/adr/"+base)
		for _, section := range []string{"## Context", "## Decision", "## Consequences", "## Enforced by"} {
			if !strings.Contains(text, "\n"+section+"\n") {
				t.Errorf("docs/adr/%s has no section %q", base, section)
			}
		}
	}
}

// documents are the Markdown files of the repository outside testdata.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "examples/*/*.md", "config/*.md"} {
		names, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			rel, err := filepath.Rel(filepath.Join("..", ".."), name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(rel))
		}
	}
	return all
}

// TestDocumentsNameRealTests keeps "enforced by" true: a test that a document
// names must exist.
func TestDocumentsNameRealTests(t *testing.T) {
	var tests []string
	for _, f := range files(t) {
		for _, decl := range f.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest() {
				tests = append(tests, fn.Name.Name)
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Z]\\w+)`")
	for _, doc := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(readFile(t, doc), -1) {
			if !slices.Contains(tests, m[1]) {
				t.Errorf("%s names %s, which is not a test", doc, m[1])
			}
		}
	}
}

func TestLinksLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`]*`")
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(readFile(t, doc), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := filepath.Join("..", "..", filepath.Dir(filepath.FromSlash(doc)), filepath.FromSlash(m[1]))
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}

func TestExamplesAreDescribed(t *testing.T) {
	readme := readFile(t, "README.md")
	for _, pkg := range packages(t) {
		if path.Dir(pkg) != "examples" {
			continue
		}
		if !strings.Contains(readme, "]("+pkg+")") {
			t.Errorf("README.md does not link to %s", pkg)
		}
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(pkg), "README.md")); err != nil {
			t.Errorf("%s has no README.md: say what it shows and how to run it", pkg)
		}
	}
}
