package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// file is one Go file of the repository, of either module and for whatever
// platform and build tags.
type file struct {
	path  string // relative to the repository, with slashes
	lines int
	fset  *token.FileSet
	tree  *ast.File
}

// dir is the directory of the file, which names its package in the tables.
func (f file) dir() string { return path.Dir(f.path) }

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f file) isGenerated() bool { return strings.HasPrefix(path.Base(f.path), "zz_generated") }

// isNested says that the file belongs to the module in test/.
func (f file) isNested() bool { return strings.HasPrefix(f.path, "test/") }

// at names a place in the file.
func (f file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// imports maps the name each import has in the file to its path.
func (f file) imports() map[string]string {
	byName := map[string]string{}
	for _, spec := range f.tree.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && len(name) == 2 && path.Dir(p) != "." {
			name = path.Base(path.Dir(p)) // "k8s.io/klog/v2" is klog
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		byName[name] = p
	}
	return byName
}

var parsed = sync.OnceValues(parseAll)

// files returns every Go file of the repository.
func files(t *testing.T) []file {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parseAll() ([]file, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return nil, err
	}
	var all []file
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			skip := slices.Contains([]string{"bin", "vendor", "testdata"}, d.Name())
			if name != root && (skip || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		f, err := parse(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since the directory was read
		}
		all = append(all, f)
		return err
	})
	return all, err
}

func parse(root, name string) (file, error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return file{}, err
	}
	f := file{path: filepath.ToSlash(rel), lines: strings.Count(string(source), "\n"), fset: token.NewFileSet()}
	f.tree, err = parser.ParseFile(f.fset, f.path, source, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

// packages returns the directories that hold a package with more than tests, of both modules.
func packages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, f := range files(t) {
		if !f.isTest() && !slices.Contains(dirs, f.dir()) {
			dirs = append(dirs, f.dir())
		}
	}
	slices.Sort(dirs)
	return dirs
}
