package arch

import (
	"cmp"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goMod is what the tests read of a go.mod file.
type goMod struct {
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
	Exclude []struct{ Path, Version string }
}

// readGoMod reads the go.mod of a module of the repository.
func readGoMod(t *testing.T, dir string) goMod {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = filepath.Join("..", "..", dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s/go.mod: %v", dir, err)
	}
	var m goMod
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatalf("%s/go.mod: %v", dir, err)
	}
	return m
}

func TestGoModHasNoReplace(t *testing.T) {
	m := readGoMod(t, ".")
	if len(m.Replace)+len(m.Exclude) > 0 {
		t.Errorf("go.mod has replace or exclude lines, which a consumer's go get ignores: %v %v", m.Replace, m.Exclude)
	}
	for _, r := range readGoMod(t, "test").Replace {
		if r.Old.Path != module {
			t.Errorf("test/go.mod replaces %s: the tests run on what a consumer gets", r.Old.Path)
		}
	}
}

// modules are the folders of the modules that have the library's versions.
func modules() []string {
	return []string{
		".", "test", "test/chart/helm", "test/federation/sample", "test/storage/etcd37", "examples/kubebuilder", "examples/clusterregistry",
	}
}

// olderEtcds are the folders of the modules that build an earlier etcd with the library's versions of all that is
// not etcd's own, by what they have at versions of their own beside that.
func olderEtcds() map[string]string {
	return map[string]string{
		// The next one lacks what etcd 3.5 calls.
		"test/storage/etcd35": "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc",
		"test/storage/etcd36": "",
	}
}

func TestGoModHasNoKubernetes(t *testing.T) {
	for _, dir := range modules() {
		for _, r := range readGoMod(t, dir).Require {
			if r.Path == "k8s.io/kubernetes" {
				t.Errorf("%s/go.mod requires %s: see docs/adr/0001", dir, r.Path)
			}
		}
	}
}

// TestFamiliesHaveOneVersion holds what is released together at one version,
// in both modules.
func TestFamiliesHaveOneVersion(t *testing.T) {
	families := map[string]struct {
		prefix string
		except []string
	}{
		"kubernetes": {
			prefix: "k8s.io/",
			// Released on their own.
			except: []string{"k8s.io/klog/v2", "k8s.io/utils", "k8s.io/kube-openapi", "k8s.io/gengo/v2"},
		},
		"etcd": {prefix: "go.etcd.io/etcd/"},
	}
	for name, family := range families {
		t.Run(name, func(t *testing.T) {
			found := map[string][]string{}
			for _, dir := range modules() {
				for _, r := range readGoMod(t, dir).Require {
					if strings.HasPrefix(r.Path, family.prefix) && !slices.Contains(family.except, r.Path) {
						found[r.Version] = append(found[r.Version], filepath.ToSlash(filepath.Join(dir, "go.mod"))+" "+r.Path)
					}
				}
			}
			if len(found) != 1 {
				t.Errorf("modules %s* must have one version in go.mod and test/go.mod (docs/adr/0005): %v", family.prefix, found)
			}
		})
	}
}

func TestModulesAgree(t *testing.T) {
	versions := map[string]string{}
	for _, r := range readGoMod(t, ".").Require {
		versions[r.Path] = r.Version
	}
	older := olderEtcds()
	for _, dir := range slices.AppendSeq(modules(), maps.Keys(older)) {
		m := readGoMod(t, dir)
		replaced := map[string]string{}
		for _, r := range m.Replace {
			replaced[r.Old.Path] = r.New.Version
		}
		for _, r := range m.Require {
			used := cmp.Or(replaced[r.Path], r.Version)
			if except, is := older[dir]; is && (r.Path == except || strings.HasPrefix(r.Path, "go.etcd.io/")) {
				continue
			}
			if v, both := versions[r.Path]; both && v != used {
				t.Errorf("%s is %s in go.mod and %s in %s/go.mod: the tests must run on the versions of the library, and share its build cache",
					r.Path, v, used, dir)
			}
		}
	}
	if a, b := readGoMod(t, ".").Go, readGoMod(t, "test").Go; a != b {
		t.Errorf("go.mod says go %s, test/go.mod says go %s", a, b)
	}
}
