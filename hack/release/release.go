package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// release is what is built, and where it goes.
type release struct {
	dir     string // of the module, in a clone of its repository
	pkg     string // the main package; its last element is the name of the program
	targets []target
	dist    string
	dirty   bool // what is not committed may be built
	out     io.Writer
}

type target struct{ os, arch string }

// env makes Go build for the target. What the environment says about the build does
// not count: it would change the bytes.
func (t target) env() []string {
	return []string{
		"CGO_ENABLED=0", "GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off",
	}
}

// checksums is the name of the file with the hashes of the others.
const checksums = "checksums.txt"

// documents are the files of the repository in every archive.
func documents() []string { return []string{"LICENSE", "README.md"} }

func (r release) name() string { return path.Base(r.pkg) }

func (r release) run(ctx context.Context) error {
	if err := r.clean(ctx); err != nil {
		return err
	}
	if err := r.empty(); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a left-over in the temporary directory harms nobody
	var written []string
	for _, t := range r.targets {
		binary := filepath.Join(tmp, t.os+"-"+t.arch, r.name())
		if err := r.build(ctx, t, binary); err != nil {
			return fmt.Errorf("%s/%s: %w", t.os, t.arch, err)
		}
		names, err := r.pack(ctx, t, binary)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", t.os, t.arch, err)
		}
		written = append(written, names...)
	}
	return r.sum(written)
}

// clean refuses a working tree with changes.
func (r release) clean(ctx context.Context) error {
	changes, err := r.command(ctx, nil, "git", "status", "--porcelain")
	if err != nil || len(changes) == 0 || r.dirty {
		return err
	}
	return fmt.Errorf("there are changes that are not committed: commit them, or build them with -dirty:\n%s", changes)
}

// empty removes the files of an earlier release.
func (r release) empty() error {
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return err
	}
	for _, pattern := range []string{r.name() + "_*.tar.gz", r.name() + "_*.spdx.json", checksums} {
		old, err := filepath.Glob(filepath.Join(r.dist, pattern))
		if err != nil {
			return err
		}
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// build compiles the program.
func (r release) build(ctx context.Context, t target, binary string) error {
	_, err := r.command(ctx, t.env(), "go", "build", "-buildvcs=true", "-trimpath", "-ldflags=-s -w -buildid=", "-o", binary, r.pkg)
	return err
}

// pack writes the archive and the SBOM of a binary, and returns their names.
func (r release) pack(ctx context.Context, t target, binary string) ([]string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	if info.Main.Version == "" || info.Main.Version == "(devel)" {
		return nil, errors.New("go gave the binary no version: it takes one from git, but not in a linked worktree: " +
			"release from a clone (git clone . /tmp/clone)")
	}
	when, err := commitTime(info)
	if err != nil {
		return nil, err
	}
	base := strings.Join([]string{r.name(), info.Main.Version, t.os, t.arch}, "_")
	files := []packed{{name: r.name(), from: binary, mode: 0o755}}
	for _, name := range documents() {
		files = append(files, packed{name: name, from: filepath.Join(r.dir, name), mode: 0o644})
	}
	licenses, err := r.licenses(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(binary+"."+licensesFile, []byte(licenses), 0o600); err != nil {
		return nil, err
	}
	files = append(files, packed{name: licensesFile, from: binary + "." + licensesFile, mode: 0o644})
	archive, err := pack(files, when)
	if err != nil {
		return nil, err
	}
	sbom, err := sbomOf(info, described{archive: base + ".tar.gz", sum: hash(archive), created: when})
	if err != nil {
		return nil, err
	}
	size, err := os.Stat(binary)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(r.out, "%s: %.1f MiB, the binary %.1f MiB\n", base+".tar.gz", mebibytes(int64(len(archive))), mebibytes(size.Size()))
	if err := os.WriteFile(filepath.Join(r.dist, base+".tar.gz"), archive, 0o644); err != nil {
		return nil, err
	}
	return []string{base + ".tar.gz", base + ".spdx.json"}, os.WriteFile(filepath.Join(r.dist, base+".spdx.json"), sbom, 0o644)
}

// commitTime is the time of the commit that a binary was built from.
func commitTime(info *buildinfo.BuildInfo) (time.Time, error) {
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			return time.Parse(time.RFC3339, s.Value)
		}
	}
	return time.Time{}, errors.New("go did not note the commit in the binary: release from a clone of the repository, with git installed")
}

// sum writes the hashes of the files, in the format of sha256sum.
func (r release) sum(names []string) error {
	slices.Sort(names)
	var lines strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(r.dist, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", hash(content), name)
	}
	return os.WriteFile(filepath.Join(r.dist, checksums), []byte(lines.String()), 0o644)
}

// command runs a program in the module; what it says about an error becomes part of the error.
func (r release) command(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
