// Package program builds the programs that tests run. Each is linked once, in bin/test, and
// shared by all packages of tests: to link the server takes a quarter of a minute.
package program

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// library is the module whose folder is the root of the repository.
const library = "github.com/sailplane-dev/sailplane"

// Sailplane puts the binary that users run into a folder, and returns its path. It is built
// rather than linked into the tests, to be what users run.
func Sailplane(ctx context.Context, dir string) (path string, err error) {
	path = executable(dir, "sailplane")
	return path, Build(ctx, ".", "./cmd/sailplane", path)
}

// Kubectl puts cmd/kubectl of Kubernetes, at the version of the libraries, into a folder, and
// returns its path. A program of its own starts in four fifths of the time that a binary of tests
// takes which is kubectl when it is called so.
func Kubectl(ctx context.Context, dir string) (path string, err error) {
	path = executable(dir, "kubectl")
	return path, Build(ctx, "test", "./program/kubectl", path)
}

// KubeAPIServer puts kube-apiserver of Kubernetes, at the version that the benchmark compares with, into a folder, and
// returns its path. To compile it takes minutes where the compiler's cache does not have it.
func KubeAPIServer(ctx context.Context, dir string) (path string, err error) {
	path = executable(dir, "kube-apiserver")
	return path, Build(ctx, "test/bench/peers", "k8s.io/kubernetes/cmd/kube-apiserver", path)
}

func executable(dir, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// Build puts a program of the module in a folder of the repository where a path says. It needs
// to run in a module that requires the library, as that of the tests.
func Build(ctx context.Context, module, pkg, path string) error {
	name := strings.ReplaceAll(filepath.ToSlash(filepath.Join(module, filepath.Base(path))), "/", "-")
	// One that builds must not change the file while another one copies it.
	shared, unlock, err := Shared(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	module = filepath.Join(filepath.Dir(shared), "..", "..", module)
	// The flags for compiling are those of the Makefile's tests: the build is shared with them.
	build := exec.CommandContext(ctx, "go", "build", "-pgo=off", "-ldflags=-s -w", "-o", shared, pkg)
	build.Dir = module
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "PWD="+module)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", pkg, module, err, bytes.TrimSpace(out))
	}
	if os.Link(shared, path) == nil {
		return nil
	}
	content, err := os.ReadFile(shared) // the other path is on another file system
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o755)
}

// Shared returns the path of a file or folder that tests of all packages share, and locks it until unlock is
// called.
func Shared(ctx context.Context, name string) (path string, unlock func(), err error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", library)
	out, err := list.Output()
	if err != nil {
		return "", nil, fmt.Errorf("find the repository: %s: %w", list, err)
	}
	path = filepath.Join(string(bytes.TrimSpace(out)), "bin", "test", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", nil, err
	}
	unlock, err = lockedfile.MutexAt(path + ".lock").Lock()
	return path, unlock, err
}
