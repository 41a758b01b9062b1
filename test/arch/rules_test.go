package arch

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines     = 500
	maxFunctionLines = 80
)

func TestEveryPackageIsDocumented(t *testing.T) {
	docs := map[string]int{}
	for _, f := range files(t) {
		if f.isTest() {
			continue
		}
		docs[f.dir()] += 0
		if f.tree.Doc == nil {
			continue
		}
		docs[f.dir()]++
		if text := f.tree.Doc.Text(); f.tree.Name.Name != "main" && !strings.HasPrefix(text, "Package "+f.tree.Name.Name+" ") {
			t.Errorf("%s: the package comment must start with \"Package %s \"", f.path, f.tree.Name.Name)
		}
	}
	for dir, n := range docs {
		switch {
		case n == 0:
			t.Errorf("package %s has no package comment: say what it holds and for whom", dir)
		case n > 1:
			t.Errorf("package %s has %d package comments: keep one", dir, n)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, f := range files(t) {
		if f.isGenerated() {
			continue
		}
		if f.lines > maxFileLines {
			t.Errorf("%s has %d lines: split it, %d is the limit", f.path, f.lines, maxFileLines)
		}
		if f.isTest() {
			continue // a table is as long as its cases
		}
		for _, decl := range f.tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > maxFunctionLines {
				t.Errorf("%s: %s has %d lines: split it, %d is the limit", f.at(fn), fn.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

// ends are the functions that end the process or panic, by import path. A name
// that ends in * stands for all that start with it.
var ends = map[string][]string{
	"os":                                   {"Exit"},
	"log":                                  {"Fatal*", "Panic*"},
	"syscall":                              {"Exit"},
	"k8s.io/klog/v2":                       {"Fatal*", "Exit*"},
	"k8s.io/apimachinery/pkg/util/runtime": {"Must"},
	"github.com/sirupsen/logrus":           {"Fatal*", "Panic*", "Exit*"},
}

func TestLibraryNeverExits(t *testing.T) {
	for _, f := range files(t) {
		if f.isTest() || f.isGenerated() || !below(f.path, "pkg") {
			continue
		}
		imports := f.imports()
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch fn := call.Fun.(type) {
			case *ast.Ident:
				if fn.Name == "panic" && !goesOn(f.tree, call) {
					t.Errorf("%s: panic: return an error, the library is part of somebody's program", f.at(n))
				}
			case *ast.SelectorExpr:
				pkg, _ := fn.X.(*ast.Ident)
				if pkg != nil && endsProcess(ends[imports[pkg.Name]], fn.Sel.Name) {
					t.Errorf("%s: %s.%s: return an error, the library is part of somebody's program", f.at(n), pkg.Name, fn.Sel.Name)
				}
			}
			return true
		})
	}
}

// goesOn says whether a call of panic hands on what the file recovered.
func goesOn(file *ast.File, call *ast.CallExpr) bool {
	what, ok := call.Args[0].(*ast.Ident)
	recovered := false
	ast.Inspect(file, func(n ast.Node) bool {
		a, is := n.(*ast.AssignStmt)
		if !ok || !is || len(a.Lhs) != 1 || len(a.Rhs) != 1 {
			return true
		}
		to, _ := a.Lhs[0].(*ast.Ident)
		from, _ := a.Rhs[0].(*ast.CallExpr)
		if to != nil && to.Name == what.Name && from != nil {
			fn, _ := from.Fun.(*ast.Ident)
			recovered = recovered || fn != nil && fn.Name == "recover"
		}
		return true
	})
	return recovered
}

func endsProcess(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		prefix, many := strings.CutSuffix(n, "*")
		return name == n || many && strings.HasPrefix(name, prefix)
	})
}

func TestLibraryHasNoInit(t *testing.T) {
	for _, f := range files(t) {
		if f.isTest() || f.isGenerated() || !below(f.path, "pkg") {
			continue
		}
		for _, decl := range f.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init: importing a package must do nothing", f.at(fn))
			}
		}
	}
}

// TestExportedFunctionsReturnExportedTypes: who calls a function can name what it returns.
func TestExportedFunctionsReturnExportedTypes(t *testing.T) {
	for _, f := range files(t) {
		if f.isTest() || f.isGenerated() {
			continue
		}
		for _, decl := range f.tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || fn.Type.Results == nil || fn.Recv != nil && isHidden(fn.Recv.List[0].Type, nil) {
				continue
			}
			for _, result := range fn.Type.Results.List {
				if isHidden(result.Type, fn.Type.TypeParams) {
					t.Errorf("%s: %s returns a type that its callers cannot name: export the type", f.at(fn), fn.Name.Name)
				}
			}
		}
	}
}

// isHidden tells whether a type is one of its package that is not exported, or is made of one.
func isHidden(e ast.Expr, parameters *ast.FieldList) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isHidden(e.X, parameters)
	case *ast.ArrayType:
		return isHidden(e.Elt, parameters)
	case *ast.IndexExpr:
		return isHidden(e.X, parameters)
	case *ast.Ident:
		if parameters != nil {
			for _, p := range parameters.List {
				if slices.ContainsFunc(p.Names, func(n *ast.Ident) bool { return n.Name == e.Name }) {
					return false
				}
			}
		}
		return !e.IsExported() && types.Universe.Lookup(e.Name) == nil
	}
	return false
}

// TestLibraryWritesNoGlobals keeps the library from configuring what belongs
// to the program around it. Where a library we use leaves no other way, the
// work-around is in pkg/internal/upstream, or, where programs without that
// library must not link it, in the file named here, and says what it leaves alone.
func TestLibraryWritesNoGlobals(t *testing.T) {
	writes := map[string][]string{
		"os":                         {"Setenv", "Unsetenv", "Clearenv", "Chdir"},
		"log":                        {"Set*"},
		"log/slog":                   {"SetDefault", "SetLogLoggerLevel"},
		"net/http":                   {"Handle", "HandleFunc"},
		"k8s.io/klog/v2":             {"SetLogger", "SetLoggerWithOptions", "SetSlogLogger", "ClearLogger", "InitFlags", "SetOutput*"},
		"github.com/sirupsen/logrus": {"Set*", "AddHook"},
		"runtime/debug":              {"SetGCPercent", "SetMemoryLimit"},
		"flag":                       {"*"},
	}
	for _, f := range files(t) {
		if f.isTest() || f.isGenerated() || !below(f.path, "pkg") || below(f.path, "pkg/internal/upstream") ||
			f.path == "pkg/storage/kine/logrus.go" {
			continue
		}
		imports := f.imports()
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fn, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := fn.X.(*ast.Ident); ok && endsProcess(writes[imports[pkg.Name]], fn.Sel.Name) {
				t.Errorf("%s: %s.%s writes state of the whole process, which belongs to the program: leave it to cmd", f.at(n), pkg.Name, fn.Sel.Name)
			}
			return true
		})
	}
}
