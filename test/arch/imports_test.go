package arch

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// below says whether p is root or below it.
func below(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// matches says whether one of the patterns of a table covers a package.
func matches(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		root, deep := strings.CutSuffix(pattern, "/...")
		if !deep {
			return pkg == root
		}
		return below(pkg, root) && (!below(pkg, "pkg/internal") || below(root, "pkg/internal"))
	})
}

// rowFor finds the row of mayImport that places a package: its own, or else
// that of a parent with "/...".
func rowFor(pkg string) (allowed []string, found bool) {
	if allowed, found = mayImport[pkg]; found {
		return allowed, true
	}
	for pattern, allowed := range mayImport {
		if strings.HasSuffix(pattern, "/...") && matches(pkg, []string{pattern}) {
			return allowed, true
		}
	}
	return nil, false
}

func TestEveryPackageHasAPlace(t *testing.T) {
	for _, pkg := range packages(t) {
		if below(pkg, "test") {
			continue
		}
		if _, found := rowFor(pkg); !found {
			t.Errorf("package %s has no row in mayImport: add one to test/arch/tables_test.go that says which packages it may import, and its line to docs/ARCHITECTURE.md", pkg)
		}
	}
}

func TestEveryPlaceHasAPackage(t *testing.T) {
	all := packages(t)
	for pattern := range mayImport {
		if !slices.ContainsFunc(all, func(pkg string) bool { return matches(pkg, []string{pattern}) }) {
			t.Errorf("mayImport has a row for %s, where there is no package: remove the row", pattern)
		}
	}
}

func TestMayImport(t *testing.T) {
	for _, f := range files(t) {
		if f.isTest() || f.isNested() {
			continue
		}
		allowed, found := rowFor(f.dir())
		if !found {
			continue // TestEveryPackageHasAPlace says so
		}
		for _, imported := range f.imports() {
			pkg, ours := strings.CutPrefix(imported, module+"/")
			if ours && !matches(pkg, allowed) {
				t.Errorf("%s imports %s, but %s may import only %v: move the code, let core own an interface, or change the row in test/arch/tables_test.go and say why",
					f.path, pkg, f.dir(), allowed)
			}
		}
	}
}

func TestPartsNeverImportEachOther(t *testing.T) {
	// The table is written by hand: this keeps a row from undoing the rule.
	includes := map[string][]string{ // what a part is useless without, which it gives to Plan.Include
		"pkg/authz": {"pkg/builtin/rbac"}, "pkg/quota": {"pkg/builtin/core"},
		"pkg/extend":     {"pkg/extend/v1alpha1"},                   // the types of what it serves
		"pkg/storageapi": {"pkg/storageapi/v1alpha1", "pkg/backup"}, // these, and the format of a backup of one
		"pkg/backup":     {"pkg/encryption"},                        // which tells whether a backup can be read
	}
	core := []string{"pkg/controlplane", "pkg/apis", "pkg/feed", "pkg/keep", "pkg/openapi"}
	for pkg, allowed := range mayImport {
		if !below(pkg, "pkg") || below(pkg, "pkg/apis/apitest") || pkg == "pkg/planetest" || pkg == "pkg/preset" {
			continue // what tests import may import anything that is tested, and a bundle imports what it bundles
		}
		allowed = slices.DeleteFunc(slices.Clone(allowed), func(a string) bool { return slices.Contains(includes[pkg], a) })
		if below(pkg, "pkg/storage/kine") {
			allowed = slices.DeleteFunc(slices.Clone(allowed), func(a string) bool { return a == "pkg/storage/kine" }) // what its drivers share
		}
		for _, a := range allowed {
			if !below(a, "pkg/internal") && !slices.Contains(core, a) {
				t.Errorf("mayImport lets %s import %s: parts import core, and never each other", pkg, a)
			}
			if pkg == "pkg/controlplane" && !below(a, "pkg/internal") && !slices.Contains(core, a) {
				t.Errorf("mayImport lets core import %s: core imports no part", a)
			}
		}
	}
}

func TestOnlyIn(t *testing.T) {
	// The longest path decides, so the more particular rule comes first.
	heavy := slices.Sorted(maps.Keys(onlyIn))
	slices.Reverse(heavy)
	for _, f := range files(t) {
		if f.isTest() || f.isNested() {
			continue
		}
		for _, imported := range f.imports() {
			i := slices.IndexFunc(heavy, func(h string) bool { return below(imported, h) })
			if i < 0 {
				continue
			}
			if rule := onlyIn[heavy[i]]; !matches(f.dir(), rule.packages) {
				t.Errorf("%s imports %s, which belongs only in %v: %s", f.path, imported, rule.packages, rule.reason)
			}
		}
	}
}
