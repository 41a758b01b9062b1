package crd

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/util/sets"
)

// realFolder is a folder with CRDs in a published module.
type realFolder struct {
	module, dir string
	crds        int
	skip        string // prefix of files that are no CRDs
}

// realFolders are folders with CRDs in published modules, and how many.
var realFolders = []realFolder{
	{module: "sigs.k8s.io/gateway-api", dir: "config/crd/standard", crds: 10, skip: "gateway.networking.k8s.io_vap_"},
	{module: "sigs.k8s.io/gateway-api", dir: "config/crd/experimental", crds: 13, skip: "gateway.networking.k8s.io_vap_"},
	{module: "sigs.k8s.io/cluster-api", dir: "config/crd/bases", crds: 13},
	{module: "sigs.k8s.io/cluster-api", dir: "bootstrap/kubeadm/config/crd/bases", crds: 2},
	{module: "sigs.k8s.io/cluster-api", dir: "controlplane/kubeadm/config/crd/bases", crds: 2},
	{module: "sigs.k8s.io/cluster-api", dir: "cmd/clusterctl/config/crd/bases", crds: 2},
	{module: "github.com/cert-manager/cert-manager", dir: "deploy/crds", crds: 6},
}

// realFiles reads a folder of a module.
func realFiles(t testing.TB, folder realFolder) fstest.MapFS {
	t.Helper()
	fsys, skip := os.DirFS(filepath.Join(moduleDir(t, folder.module), filepath.FromSlash(folder.dir))), folder.skip
	found := fstest.MapFS{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		isSkipped := skip != "" && strings.HasPrefix(name, skip) || name == "kustomization.yaml"
		if err != nil || entry.IsDir() || isSkipped || path.Ext(name) != ".yaml" {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		found[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLoadRealCRDs(t *testing.T) {
	t.Parallel()
	for _, folder := range realFolders {
		t.Run(folder.module+"/"+folder.dir, func(t *testing.T) {
			t.Parallel()
			definitions, _, err := load(realFiles(t, folder))
			if err != nil {
				t.Fatal(err)
			}
			names := sets.New[string]()
			for _, d := range definitions {
				names.Insert(d.name)
			}
			if len(names) != folder.crds {
				t.Errorf("%d CRDs, want %d: %v", len(names), folder.crds, sets.List(names))
			}
		})
	}
}

// BenchmarkLoad loads 60 CRDs of 125 KB on average, in a file each and all in
// one file.
func BenchmarkLoad(b *testing.B) {
	var all []*fstest.MapFile
	for _, folder := range realFolders {
		for _, file := range realFiles(b, folder) {
			all = append(all, file)
		}
	}
	const crds = 60
	many, bundle, size := fstest.MapFS{}, &bytes.Buffer{}, 0
	for i := range crds {
		data := renamed(b, all[i%len(all)].Data, i)
		many[fmt.Sprintf("%02d.yaml", i)] = &fstest.MapFile{Data: data}
		fmt.Fprintf(bundle, "---\n%s\n", data)
		size += len(data)
	}
	for name, fsys := range map[string]fstest.MapFS{"files": many, "bundle": {"all.yaml": {Data: bundle.Bytes()}}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				definitions, _, err := load(fsys)
				if err != nil || len(definitions) != crds {
					b.Fatalf("%d CRDs, %v", len(definitions), err)
				}
			}
		})
	}
}

// renamed gives a CRD a plural of its own.
func renamed(b *testing.B, data []byte, i int) []byte {
	b.Helper()
	definitions, _, err := load(fstest.MapFS{"x.yaml": {Data: data}})
	if err != nil {
		b.Fatal(err)
	}
	plural, _, _ := strings.Cut(definitions[0].name, ".")
	data = bytes.Replace(data, []byte("\n    plural: "+plural+"\n"), fmt.Appendf(nil, "\n    plural: %s%d\n", plural, i), 1)
	return bytes.Replace(data, []byte("\n  name: "+plural+"."), fmt.Appendf(nil, "\n  name: %s%d.", plural, i), 1)
}
