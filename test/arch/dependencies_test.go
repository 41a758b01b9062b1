package arch

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update writes who imports a module into the page: go test ./arch -run TestDependencies -update
var update = flag.Bool("update", false, "write who imports what into docs/dependencies.md")

// most is how many packages import a module that is listed as one of most packages.
const most = 10

// TestDependencies holds docs/dependencies.md, go.mod and the code together: a row for
// each module that the library requires, with the packages that import it.
func TestDependencies(t *testing.T) {
	importers := map[string]map[string]bool{} // module to directories
	for _, r := range readGoMod(t, ".").Require {
		if !r.Indirect {
			importers[r.Path] = map[string]bool{}
		}
	}
	longest := slices.Sorted(maps.Keys(importers))
	slices.Reverse(longest)
	for _, f := range files(t) {
		if f.isNested() || !below(f.dir(), "pkg") && !below(f.dir(), "cmd") {
			continue
		}
		for _, imported := range f.imports() {
			if i := slices.IndexFunc(longest, func(m string) bool { return below(imported, m) }); i >= 0 {
				importers[longest[i]][f.dir()] = importers[longest[i]][f.dir()] || !f.isTest()
			}
		}
	}
	want := map[string]string{}
	for module, dirs := range importers {
		maps.DeleteFunc(dirs, func(_ string, shipped bool) bool { return !shipped })
		switch needed := slices.Sorted(maps.Keys(dirs)); {
		case len(needed) == 0:
			want[module] = "tests"
		case len(needed) >= most:
			want[module] = "most packages"
		default:
			want[module] = "`" + strings.Join(needed, "`, `") + "`"
		}
	}
	got := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|$")
	page := readFile(t, "docs/dependencies.md")
	if *update {
		page = row.ReplaceAllStringFunc(page, func(line string) string {
			m := row.FindStringSubmatch(line)
			return "| `" + m[1] + "` | " + m[2] + " | " + want[m[1]] + " |"
		})
		if err := os.WriteFile(filepath.Join("..", "..", "docs", "dependencies.md"), []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		got[m[1]] = m[3]
		if _, double := want[m[1]]; !double {
			t.Errorf("docs/dependencies.md lists %s, which go.mod does not require directly", m[1])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/dependencies.md (-code +page); -update writes the last column:\n%s", diff)
	}
}
