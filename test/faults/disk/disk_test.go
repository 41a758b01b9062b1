package disk

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// quoted is a string as strace writes it.
func quoted(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%s`, hex.EncodeToString([]byte{s[i]}))
	}
	return `"` + b.String() + `"`
}

// files are the files of a directory and what is in them, zeros as dots.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		found[rel] = strings.ReplaceAll(string(content), "\x00", ".")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestLose has traces of plain files, of which everything that is not synced is lost.
func TestLose(t *testing.T) {
	for name, c := range map[string]struct {
		trace string // $NAME stands for a path below the directory
		want  map[string]string
	}{
		"a file that was never synced": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 write(3, "\x61\x62\x63", 3) = 3`,
			want: map[string]string{},
		},
		"what came after the sync": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 write(3, "\x61\x62\x63", 3) = 3
1 fsync(3) = 0
1 write(3, "\x64\x65", 2) = 2
1 pwrite64(3, "\x78", 1, 0) = 1`,
			want: map[string]string{"f": "abc"},
		},
		"a write while it was synced": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 write(3, "\x61", 1) = 1
1 fsync(3 <unfinished ...>
2 pwrite64(3, "\x62", 1, 1) = 1
1 <... fsync resumed>) = 0`,
			want: map[string]string{"f": "a"},
		},
		"a sync that did not return": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 fsync(3) = 0
1 pwrite64(3, "\x61", 1, 0 <unfinished ...>
1 <... pwrite64 resumed>) = 1
1 fsync(3 <unfinished ...>
1 +++ killed by SIGKILL +++`,
			want: map[string]string{"f": ""},
		},
		"a write that did not return": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 fsync(3) = 0
1 pwrite64(3, "\x61", 1, 0 <unfinished ...>
2 syscall_0x7ff4562f1000(0, 0x1f000, 0x3, 0x22, 0xffffffffffffffff, 0 <detached ...>`,
			want: map[string]string{"f": ""},
		},
		"the sync of another file": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 openat(AT_FDCWD, $g, O_RDWR|O_CREAT, 0600) = 4
1 write(3, "\x61", 1) = 1
1 write(4, "\x62", 1) = 1
1 fdatasync(4) = 0`,
			want: map[string]string{"f": "", "g": "b"}, // its name came before
		},
		"a number that is used again": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 close(3 <unfinished ...>
2 openat(AT_FDCWD, $g, O_RDWR|O_CREAT, 0600) = 3
1 <... close resumed>) = 0
2 write(3, "\x62", 1) = 1
2 fsync(3) = 0`,
			want: map[string]string{"f": "", "g": "b"},
		},
		"a move in the file": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 write(3, "\x61\x62\x63\x64", 4) = 4
1 lseek(3, 0, SEEK_SET) = 0
1 read(0x3, 0xc000, 0x2) = 0x2
1 write(3, "\x78", 1) = 1
1 fallocate(3, 0, 0, 6) = 0
1 fsync(3) = 0
1 ftruncate(3, 1) = 0`,
			want: map[string]string{"f": "abxd.."},
		},
		"a file that is synced by every write": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT|O_DSYNC, 0600) = 3
1 write(3, "\x61", 1) = 1
1 write(3, "\x62", 1 <unfinished ...>`,
			want: map[string]string{"f": "a"},
		},
		"a copy by the kernel": {
			trace: `
1 openat(AT_FDCWD, $f, O_RDWR|O_CREAT, 0600) = 3
1 write(3, "\x61\x62\x63\x64", 4) = 4
1 fsync(3) = 0
1 pwrite64(3, "\x78", 1, 2) = 1
1 fallocate(3, 0, 0, 6) = 0
1 lseek(3, 1, SEEK_SET) = 1
1 openat(AT_FDCWD, $g, O_RDWR|O_CREAT, 0600) = 4
1 copy_file_range(3, NULL, 4, NULL, 1000, 0) = 5
1 copy_file_range(3, NULL, 4, NULL, 1000, 0) = 0
1 write(4, "\x79", 1) = 1
1 fsync(4) = 0`,
			want: map[string]string{"f": "abcd", "g": "bxd..y"},
		},
		"a rename of a directory": {
			trace: `
1 mkdirat(AT_FDCWD, $d, 0700) = 0
1 openat(AT_FDCWD, $d/f, O_RDWR|O_CREAT, 0600) = 3
1 write(3, "\x61", 1) = 1
1 fsync(3) = 0
1 renameat(AT_FDCWD, $d, AT_FDCWD, $e) = 0
1 openat(AT_FDCWD, $e, O_RDONLY|O_DIRECTORY) = 4
1 fsync(4) = 0
1 unlinkat(AT_FDCWD, $e/f, 0) = 0`,
			want: map[string]string{"e/f": "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			trace := c.trace
			for _, path := range []string{"d/f", "e/f", "d", "e", "f", "g"} {
				trace = strings.ReplaceAll(trace, "$"+path, quoted(filepath.Join(dir, path)))
			}
			d := New(dir)
			replayText(t, d, trace[1:]+"\n")
			if _, err := d.Lose(None, rand.New(rand.NewPCG(1, 1))); err != nil {
				t.Fatal(err)
			}
			if err := d.Restore(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, files(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func replayText(t *testing.T, d *Disk, text string) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(trace, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Replay(trace); err != nil {
		t.Fatal(err)
	}
}

// TestLossesDiffer loses the same changes in each way, and finds a prefix of
// them, pages without those before them, and nothing.
func TestLossesDiffer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	found := map[Loss]map[string]bool{}
	for _, loss := range Losses() {
		found[loss] = map[string]bool{}
		for seed := range uint64(50) {
			d := New(dir)
			f := &file{pages: map[int64]*[page]byte{}}
			if err := d.name(func(n names) error { n[filepath.Join(dir, "f")] = f; return nil }); err != nil {
				t.Fatal(err)
			}
			if err := d.sync(nil, d.count); err != nil {
				t.Fatal(err)
			}
			for at, each := range []string{"a", "b", "c"} {
				d.Write(f, int64(at*page), []byte(each))
			}
			if _, err := d.Lose(loss, rand.New(rand.NewPCG(seed, 0))); err != nil {
				t.Fatal(err)
			}
			kept := ""
			for at, each := range []string{"a", "b", "c"} {
				if f.pages[int64(at)] != nil {
					kept += each
				}
			}
			found[loss][kept] = true
		}
	}
	want := map[Loss]map[string]bool{
		None:   {"": true},
		Prefix: {"": true, "a": true, "ab": true, "abc": true},
		Subset: {"": true, "a": true, "b": true, "c": true, "ab": true, "ac": true, "bc": true, "abc": true},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

// writeTo is set for a process of this binary that writes files in place of testing.
const writeTo = "SAILPLANE_TEST_WRITE_TO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writeTo); dir != "" {
		if err := writeFiles(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeFiles writes two files, and syncs the begin of one of them.
func writeFiles(dir string) error {
	u, err := os.Create(filepath.Join(dir, "unsynced"))
	if err != nil {
		return err
	}
	defer u.Close()
	s, err := os.Create(filepath.Join(dir, "synced"))
	if err != nil {
		return err
	}
	defer s.Close()
	for range 100 {
		_, e := u.WriteString(strings.Repeat("y", 100))
		_, f := s.WriteString(strings.Repeat("x", 100))
		err = errors.Join(err, e, f)
	}
	err = errors.Join(err, s.Sync())
	_, e := s.WriteString("more")
	return errors.Join(err, e)
}

// TestTraced loses what a real program wrote and did not sync.
func TestTraced(t *testing.T) {
	if err := Available(); err != nil {
		if os.Getenv("SAILPLANE_CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), writeTo+"="+dir)
	if out, err := Traced(cmd, trace).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	whole := map[string]string{"synced": strings.Repeat("x", 10000) + "more", "unsynced": strings.Repeat("y", 10000)}
	if diff := cmp.Diff(whole, files(t, dir)); diff != "" {
		t.Fatalf("the program did not write what it should: %s", diff)
	}
	d := New(dir)
	if err := d.Replay(trace); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lose(None, rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	if err := d.Restore(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"unsynced": "", "synced": strings.Repeat("x", 10000)}, files(t, dir)); diff != "" {
		t.Error(diff)
	}
}
