package script

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sailplane-dev/sailplane/test/crds"
)

// largestSet has the most definitions, and the most bytes of them.
const largestSet = "cluster-api"

// TestCRDs runs the scripts of testdata/crds with the definitions of other
// projects in the folder crds of the script, and their samples, if there are
// any, in the folders samples and invalid. The largest set goes to the default storage, the
// others to memory.
func TestCRDs(t *testing.T) {
	t.Parallel()
	for _, set := range crds.Sets() {
		t.Run(set.Name, func(t *testing.T) {
			t.Parallel()
			var folders [3][]string
			for i, list := range []func() ([]string, error){
				func() ([]string, error) { return set.Files(t.Context()) },
				func() ([]string, error) { return set.SampleFiles(t.Context()) },
				func() ([]string, error) { return set.InvalidFiles(t.Context()) },
			} {
				var err error
				if folders[i], err = list(); err != nil {
					t.Fatal(err)
				}
			}
			for name, storage := range storages {
				if want := map[bool]string{true: "etcd", false: "memory"}[set.Name == largestSet]; name != want {
					continue // the size of definitions and objects is all that a storage sees of them
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					p := params("crds", storage)
					p.Condition = func(cond string) (bool, error) {
						if name, ok := strings.CutPrefix(cond, "set:"); ok {
							return set.Name == name, nil
						}
						if cond != "samples" {
							return false, fmt.Errorf("unknown condition %q", cond)
						}
						return len(set.Samples) > 0, nil
					}
					p.Setup = func(e *testscript.Env) error {
						for i, folder := range []string{"crds", "samples", "invalid"} {
							if err := copyTo(filepath.Join(e.WorkDir, folder), folders[i]); err != nil {
								return err
							}
						}
						return Setup(e, root, storage)
					}
					testscript.Run(t, p)
				})
			}
		})
	}
}

// copyTo copies files into a folder, each under a name of its own.
func copyTo(folder string, files []string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	slices.Sort(files)
	for i, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%02d-%s", i, filepath.Base(name))), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
