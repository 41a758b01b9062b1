package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// peers are the programs that Sailplane is compared with.
type peers struct{ dir string }

// peer is a program of the module in peers/.
type peer struct {
	name, pkg, module string
	// version is the variable that the program's own build sets to its version.
	version string
}

func allPeers() []peer {
	return []peer{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3"},
		{
			name: "kine", pkg: "github.com/k3s-io/kine", module: "github.com/k3s-io/kine",
			version: "github.com/k3s-io/kine/pkg/version.Version",
		},
		{
			name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: "k8s.io/kubernetes",
			version: "k8s.io/component-base/version.gitVersion",
		},
	}
}

// stampFile says in a directory of peers what they were built from.
const stampFile = "built-from"

// preparePeers builds the programs, unless the directory has them as they would
// be built. Programs without a stamp are the user's own, and used as they are.
func preparePeers(ctx context.Context, l *lab, root string) (*peers, error) {
	p := &peers{dir: l.peers}
	if p.dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("%w: give a directory with -peers", err)
		}
		p.dir = filepath.Join(cache, "sailplane-bench", "peers")
	}
	module := filepath.Join(root, "test", "bench", "peers")
	stamp, err := stampOf(module)
	if err != nil {
		return nil, err
	}
	found, err := os.ReadFile(filepath.Join(p.dir, stampFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(found) > 0 && string(found) != stamp || len(found) == 0 && !p.complete() {
		if err := p.build(ctx, l, module); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(p.dir, stampFile), []byte(stamp), 0o600); err != nil {
			return nil, err
		}
	}
	return p, p.note(ctx, l)
}

func (p *peers) program(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(p.dir, name)
}

func (p *peers) complete() bool {
	for _, each := range allPeers() {
		if _, err := os.Stat(p.program(each.name)); err != nil {
			return false
		}
	}
	return true
}

// build makes the programs with two compilers at a time: they are large.
func (p *peers) build(ctx context.Context, l *lab, module string) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	for _, each := range allPeers() {
		l.say("build %s, once, into %s", each.pkg, p.dir)
		version, err := command(ctx, module, "list", "-m", "-f", "{{.Version}}", each.module)
		if err != nil {
			return err
		}
		flags := "-s -w"
		if each.version != "" {
			flags += " -X " + each.version + "=" + version
		}
		// Without cgo, as Sailplane's binary is built, whatever the environment says.
		_, err = commandWith(ctx, []string{"CGO_ENABLED=0"}, module,
			"build", "-p", "2", "-ldflags", flags, "-o", p.program(each.name), each.pkg)
		if err == nil {
			err = install(p.program(each.name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// note notes what the programs say of their versions.
func (p *peers) note(ctx context.Context, l *lab) error {
	var lines []string
	for _, each := range allPeers() {
		out, err := exec.CommandContext(ctx, p.program(each.name), "--version").Output()
		if err != nil {
			return fmt.Errorf("%s --version: %w", p.program(each.name), err)
		}
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if each.name == "kube-apiserver" {
			line = each.name + " of " + line
		}
		lines = append(lines, line)
	}
	l.note("Compared with: %s; their flags are below.", strings.Join(lines, ", "))
	return nil
}

// stampOf tells one build from another.
func stampOf(module string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	return hex.EncodeToString(sum.Sum(nil)) + "\n", nil
}
