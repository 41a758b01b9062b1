package controlplane

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChainHasEveryUpstreamFilter compares the filters our chain wraps, in
// order, with those of upstream's DefaultBuildHandlerChain, read from its source.
func TestChainHasEveryUpstreamFilter(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/apiserver").Output()
	if err != nil {
		t.Fatalf("find k8s.io/apiserver: %v", err)
	}
	upstream := filtersOf(t, filepath.Join(strings.TrimSpace(string(out)), "pkg/server/config.go"), "DefaultBuildHandlerChain")
	ours := filtersOf(t, "chain.go", "permitted", "authenticated", "received")
	if len(upstream) < 20 {
		t.Fatalf("upstream has only the filters %v: is its source read right?", upstream)
	}
	if diff := cmp.Diff(upstream, ours); diff != "" {
		t.Errorf("filters differ from upstream's (-upstream +ours):\n%s", diff)
	}
}

// filtersOf are the names of the With functions called in some functions of a
// file, in the order of the given functions and of their calls. Functions of the file
// that these call count where they are called.
func filtersOf(t *testing.T, file string, functions ...string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch called := call.Fun.(type) {
			case *ast.SelectorExpr:
				if strings.HasPrefix(called.Sel.Name, "With") {
					found[f.Name.Name] = append(found[f.Name.Name], called.Sel.Name)
				}
			case *ast.Ident:
				found[f.Name.Name] = append(found[f.Name.Name], called.Name)
			}
			return true
		})
	}
	var all []string
	for _, name := range functions {
		for _, called := range found[name] {
			if inner, ours := found[called]; ours {
				all = append(all, inner...)
			} else {
				all = append(all, called)
			}
		}
	}
	return slices.DeleteFunc(all, func(called string) bool { return !strings.HasPrefix(called, "With") })
}
