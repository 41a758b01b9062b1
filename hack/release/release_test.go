package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// committed is the time of the commit that is released.
const committed = "2026-02-03T04:05:06Z"

// repository makes a repository with a small program that imports a module
// which this library requires as well, so that it is on the machine.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sums, err := os.ReadFile(filepath.Join("..", "..", "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	var sum strings.Builder
	for line := range strings.Lines(string(sums)) {
		if strings.HasPrefix(line, "github.com/google/btree ") {
			sum.WriteString(line)
		}
	}
	version := strings.Fields(sum.String())[1]
	for name, content := range map[string]string{
		"go.mod":     "module example.com/shop\n\ngo 1.26\n\nrequire github.com/google/btree " + version + "\n",
		"go.sum":     sum.String(),
		"LICENSE":    "do as you like\n",
		"README.md":  "# Shop\n",
		".gitignore": "/dist/\n",
		"cmd/shop/main.go": `package main

import (
	"os"

	"github.com/google/btree"
)

func main() {
	tree := btree.NewOrderedG[string](2)
	tree.ReplaceOrInsert("open\n")
	for word, found := tree.Min(); found; found = false {
		os.Stdout.WriteString(word)
	}
}
`,
	} {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	run(t, dir, "git", "init", "-q", "-b", "main")
	run(t, dir, "git", "add", ".")
	run(t, dir, "git", "commit", "-q", "-m", "Open the shop")
	run(t, dir, "git", "tag", "v1.2.3")
	return dir
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil { // whatever the modes are here
		t.Fatal(err)
	}
}

// run runs a program, git without the settings of whoever tests.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_DATE="+committed, "GIT_COMMITTER_DATE="+committed,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func released(t *testing.T, dir string) release {
	t.Helper()
	return release{
		dir: dir, pkg: "./cmd/shop", targets: []target{{runtime.GOOS, runtime.GOARCH}},
		dist: filepath.Join(dir, "dist"), out: io.Discard,
	}
}

// contents are the files of a directory by name.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestSameBytes(t *testing.T) {
	first := repository(t)
	second := filepath.Join(t.TempDir(), "elsewhere")
	run(t, t.TempDir(), "git", "clone", "-q", first, second)
	for name, content := range map[string]string{"shop_v1.0.0_linux_amd64.tar.gz": "old", "mine.txt": "not of a release"} {
		write(t, filepath.Join(second, "dist", name), content)
	}
	if err := released(t, first).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-ldflags=-X=main.x=1 -tags=other") // of whoever builds
	if err := released(t, second).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	one, two := contents(t, filepath.Join(first, "dist")), contents(t, filepath.Join(second, "dist"))
	if _, kept := two["mine.txt"]; !kept {
		t.Error("a file that is none of a release was deleted")
	}
	delete(two, "mine.txt")
	platform := runtime.GOOS + "_" + runtime.GOARCH
	want := []string{checksums, "shop_v1.2.3_" + platform + ".spdx.json", "shop_v1.2.3_" + platform + ".tar.gz"}
	for dir, files := range map[string]map[string][]byte{"first": one, "second": two} {
		var names []string
		for name := range files {
			names = append(names, name)
		}
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", dir, diff)
		}
	}
	for name := range one {
		if !bytes.Equal(one[name], two[name]) {
			t.Errorf("%s differs when it is built in another folder and environment", name)
		}
	}
	if runtime.GOOS == "linux" { // macOS calls it shasum
		run(t, filepath.Join(first, "dist"), "sha256sum", "--check", "--strict", checksums)
	}
	if n := bytes.Count(one[checksums], []byte("\n")); n != len(one)-1 {
		t.Errorf("%s has %d lines for %d files:\n%s", checksums, n, len(one)-1, one[checksums])
	}
	t.Run("archive", func(t *testing.T) { checkArchive(t, one[want[2]]) })
	t.Run("sbom", func(t *testing.T) { checkSBOM(t, one[want[1]], one[want[2]]) })
}

// unpacked is a file of an archive.
type unpacked struct {
	Mode         int64
	UID, GID     int
	Uname, Gname string
	ModTime      string
	Content      string
}

func unpack(t *testing.T, archive []byte) map[string]unpacked {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if !zip.ModTime.IsZero() || zip.Name != "" {
		t.Errorf("the header of gzip has %q of %v, want nothing", zip.Name, zip.ModTime)
	}
	all := map[string]unpacked{}
	var order []string
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, h.Name)
		all[h.Name] = unpacked{h.Mode, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime.UTC().Format(time.RFC3339), string(content)}
	}
	if !slices.IsSorted(order) {
		t.Errorf("the archive has %v, want it sorted", order)
	}
	return all
}

func checkArchive(t *testing.T, archive []byte) {
	files := unpack(t, archive)
	binary := filepath.Join(t.TempDir(), "shop")
	if err := os.WriteFile(binary, []byte(files["shop"].Content), 0o700); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "", binary); out != "open\n" {
		t.Errorf("the program prints %q", out)
	}
	program := files["shop"]
	program.Content = ""
	files["shop"] = program
	licenses := files[licensesFile]
	for _, holder := range []string{"\nGo\n", "\ngithub.com/google/btree v", "Apache License"} {
		if !strings.Contains(licenses.Content, holder) {
			t.Errorf("the licenses of others do not have %q:\n%s", holder, licenses.Content)
		}
	}
	if strings.Contains(licenses.Content, "do as you like") {
		t.Error("the licenses of others have the program's own")
	}
	licenses.Content = ""
	files[licensesFile] = licenses
	want := map[string]unpacked{
		licensesFile: {Mode: 0o644, ModTime: committed},
		"shop":       {Mode: 0o755, ModTime: committed},
		"LICENSE":    {Mode: 0o644, ModTime: committed, Content: "do as you like\n"},
		"README.md":  {Mode: 0o644, ModTime: committed, Content: "# Shop\n"},
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// checkSBOM compares the SBOM with what the go command says of the binary.
func checkSBOM(t *testing.T, sbom, archive []byte) {
	binary := filepath.Join(t.TempDir(), "shop")
	if err := os.WriteFile(binary, []byte(unpack(t, archive)["shop"].Content), 0o700); err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(run(t, "", "go", "version", "-m", binary)) {
		switch words := strings.Fields(line); {
		case strings.HasPrefix(line, binary):
			want = append(want, "stdlib "+strings.TrimPrefix(words[1], "go")+" ")
		case words[0] == "mod":
			want = append(want, words[1]+" "+words[2]+" ")
		case words[0] == "dep":
			want = append(want, words[1]+" "+words[2]+" go.sum "+words[3])
		}
	}
	var d spdx
	if err := json.Unmarshal(sbom, &d); err != nil {
		t.Fatal(err)
	}
	var got []string
	ids := map[string]bool{}
	for _, p := range d.Packages {
		got = append(got, p.Name+" "+p.Version+" "+p.Source)
		ids[p.ID] = true
		if purl := "pkg:golang/" + p.Name + "@" + p.Version; p.Refs[0].Locator != purl {
			t.Errorf("%s is found as %s, want %s", p.Name, p.Refs[0].Locator, purl)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 3 {
		t.Errorf("modules (-go version -m, +SBOM):\n%s", diff)
	}
	if len(ids) != len(d.Packages) || len(d.Relationships) != len(d.Packages) {
		t.Errorf("%d packages have %d identifiers and %d relationships", len(d.Packages), len(ids), len(d.Relationships))
	}
	for _, r := range d.Relationships {
		if !ids[r.To] {
			t.Errorf("%s %s %s, which is no package", r.From, r.Type, r.To)
		}
	}
	if d.Creation.Created != committed {
		t.Errorf("created at %s, want the time of the commit, %s", d.Creation.Created, committed)
	}
	if program := d.Packages[0]; program.Checksums[0].Value != hash(archive) {
		t.Errorf("the program is the archive with the hash %s, want %s", program.Checksums[0].Value, hash(archive))
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		dirty  bool
		change func(t *testing.T, dir string) string // returns where to release
		says   string                                // of the error; empty: it is built
		file   string                                // that starts so is there
	}{
		"not committed": {
			reason: "what a version names is what everybody finds under its tag",
			change: func(t *testing.T, dir string) string {
				write(t, filepath.Join(dir, "README.md"), "# New\n")
				return dir
			},
			says: "commit them, or build them with -dirty:\n M README.md",
		},
		"not committed, on demand": {
			reason: "to try it", dirty: true,
			change: func(t *testing.T, dir string) string {
				write(t, filepath.Join(dir, "README.md"), "# New\n")
				return dir
			},
			file: "shop_v1.2.3+dirty_",
		},
		"no tag": {
			reason: "versions between tags are those that the go command makes",
			change: func(t *testing.T, dir string) string {
				run(t, dir, "git", "tag", "-d", "v1.2.3")
				return dir
			},
			file: "shop_v0.0.0-20260203040506-",
		},
		"linked worktree": {
			reason: "go stamps no version there",
			change: func(t *testing.T, dir string) string {
				run(t, dir, "git", "worktree", "add", "-q", "../linked")
				return filepath.Join(filepath.Dir(dir), "linked")
			},
			says: "release from a clone",
		},
		"replaced module": {
			reason: "nobody else could build it",
			change: func(t *testing.T, dir string) string {
				write(t, filepath.Join(dir, "fork", "go.mod"), "module github.com/google/btree\n\ngo 1.26\n")
				write(t, filepath.Join(dir, "fork", "btree.go"), `package btree

type Tree struct{}

func NewOrderedG[T any](int) *Tree { return nil }
func (t *Tree) ReplaceOrInsert(string) {}
func (t *Tree) Min() (string, bool) { return "", true }
`)
				write(t, filepath.Join(dir, "fork", "LICENSE"), "do as you like\n")
				run(t, dir, "go", "mod", "edit", "-replace=github.com/google/btree=./fork")
				run(t, dir, "git", "add", ".")
				run(t, dir, "git", "commit", "-q", "-m", "Fork")
				return dir
			},
			says: "go.mod replaces github.com/google/btree",
		},
		"a module without a license": {
			reason: "nobody may pass it on",
			change: func(t *testing.T, dir string) string {
				write(t, filepath.Join(dir, "fork", "go.mod"), "module github.com/google/btree\n\ngo 1.26\n")
				write(t, filepath.Join(dir, "fork", "btree.go"), "package btree\n")
				write(t, filepath.Join(dir, "cmd", "shop", "main.go"), "package main\n\nimport _ \"github.com/google/btree\"\n\nfunc main() {}\n")
				run(t, dir, "go", "mod", "edit", "-replace=github.com/google/btree=./fork")
				run(t, dir, "git", "add", ".")
				run(t, dir, "git", "commit", "-q", "-m", "Fork")
				return dir
			},
			says: "the module github.com/google/btree",
		},
		"no license": {
			reason: "the archive would be incomplete",
			change: func(t *testing.T, dir string) string {
				run(t, dir, "git", "rm", "-q", "LICENSE")
				run(t, dir, "git", "commit", "-q", "-m", "Lose it")
				return dir
			},
			says: "LICENSE: no such file",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := released(t, tc.change(t, repository(t)))
			r.dirty = tc.dirty
			err := r.run(t.Context())
			if tc.says == "" {
				if found, _ := filepath.Glob(filepath.Join(r.dist, tc.file+"*.tar.gz")); err != nil || len(found) != 1 {
					t.Errorf("%s: %d archives, %v, want one that starts with %s", tc.reason, len(found), err, tc.file)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: the error is %v, want one with %q", tc.reason, err, tc.says)
			}
		})
	}
}

func TestCollection(t *testing.T) {
	t.Parallel()
	all := collection{}
	for _, dir := range []string{"a", "b", "none"} {
		folder := filepath.Join(t.TempDir(), dir)
		write(t, filepath.Join(folder, "license.go"), "package a\n")
		if dir != "none" {
			write(t, filepath.Join(folder, "LICENSE.txt"), "free\r\n")
			write(t, filepath.Join(folder, "NOTICE"), "by "+dir+"\n")
		}
		found, err := all.add(dir, folder)
		if err != nil {
			t.Fatal(err)
		}
		if want := dir != "none"; found != want {
			t.Errorf("%s: it has a license: %v, want %v", dir, found, want)
		}
	}
	_, blocks, _ := strings.Cut(all.String(), "=\n")
	rule := "\n" + strings.Repeat("=", 80) + "\n"
	if diff := cmp.Diff("\na\n\nby a\n"+rule+"\na\nb\n\nfree\n"+rule+"\nb\n\nby b\n", blocks); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"no package": {nil, "name one main package"},
		"no system":  {[]string{"-targets", "linux", "./cmd/shop"}, `"linux" is no platform`},
		"wrong flag": {[]string{"-sign", "./cmd/shop"}, "-sign"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := command(t.Context(), tc.args, io.Discard); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error is %v, want one with %q", err, tc.says)
			}
		})
	}
}
