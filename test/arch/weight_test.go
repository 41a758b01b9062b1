package arch

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHeavyThingsArriveByImport(t *testing.T) {
	for _, cgo := range []string{"0", "1"} {
		all := deps(t, cgo)
		for name, w := range weights {
			t.Run(name+"/cgo="+cgo, func(t *testing.T) {
				t.Parallel()
				for _, pkg := range linked(t, all, w.packages) {
					for _, unwanted := range w.without {
						if below(pkg, unwanted) {
							t.Errorf("%v links %s: %s (find out why with: go mod why %s)", w.packages, pkg, w.reason, pkg)
						}
					}
				}
			})
		}
	}
}

// linked are the packages that a program of the given packages links. "./..." is all of the library.
func linked(t *testing.T, all map[string][]string, packages []string) []string {
	t.Helper()
	var found []string
	for _, p := range packages {
		if p == "./..." {
			for pkg, deps := range all {
				found = append(append(found, pkg), deps...)
			}
			continue
		}
		deps, ok := all[module+"/"+p]
		if !ok {
			t.Fatalf("the table of weights names a package that is not there: %s", p)
		}
		found = append(append(found, module+"/"+p), deps...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// deps are the packages of the library, each with all that it imports.
func deps(t *testing.T, cgo string) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 0 {
			all[words[0]] = words[1:]
		}
	}
	return all
}
