package arch

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestHeavyThingsArriveByImport(t *testing.T) {
	for name, w := range weights {
		for _, cgo := range []string{"0", "1"} {
			t.Run(name+"/cgo="+cgo, func(t *testing.T) {
				t.Parallel()
				linked := deps(t, cgo, w.packages)
				for _, pkg := range linked {
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

// deps lists the packages that a program of the given packages links.
func deps(t *testing.T, cgo string, packages []string) []string {
	t.Helper()
	args := []string{"list", "-deps"}
	for _, p := range packages {
		if p == "./..." {
			args = append(args, p)
			continue
		}
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(p))); err != nil {
			t.Fatalf("the table of weights names a package that is not there: %v", err)
		}
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.Fields(string(out))
}
