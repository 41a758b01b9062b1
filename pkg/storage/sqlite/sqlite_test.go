package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
)

// file describes a new file.
func file(t testing.TB) controlplane.Storage {
	return File{Path: filepath.Join(t.TempDir(), "sub", "x.db")}
}

func TestContract(t *testing.T) { storagetest.Run(t, file, storagetest.Size(size)) }

// size is what the file takes with those that SQLite keeps beside it.
func size(s controlplane.Storage) int64 {
	var n int64
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(s.(File).Path + suffix); err == nil {
			n += info.Size()
		}
	}
	return n
}

func TestPersistence(t *testing.T) { storagetest.RunPersistent(t, file) }

func BenchmarkStart(b *testing.B)  { storagetest.BenchmarkStart(b, file) }
func BenchmarkCreate(b *testing.B) { storagetest.BenchmarkCreate(b, file) }

func TestFilesArePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "state.db")
	s := File{Path: path}.Open()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for name, want := range map[string]os.FileMode{
		filepath.Dir(path): 0o700 | os.ModeDir,
		path:               0o600,
		path + ".lock":     0o600,
		path + "-wal":      0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestSynchronous(t *testing.T) {
	for name, c := range map[string]struct {
		unsafe bool
		want   int
		reason string
	}{
		"default": {false, 2, "an acknowledged write survives a power loss: FULL"},
		"unsafe":  {true, 1, "only the file's consistency does: NORMAL"},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLog(t, File{Path: filepath.Join(t.TempDir(), "state.db"), UnsafeNoSync: c.unsafe})
			var level int
			var mode string
			must(t, l.writer.db.QueryRow("PRAGMA synchronous").Scan(&level))
			must(t, l.writer.db.QueryRow("PRAGMA journal_mode").Scan(&mode))
			if level != c.want || mode != "wal" {
				t.Errorf("%s: got synchronous=%d journal_mode=%s, want %d and wal", c.reason, level, mode, c.want)
			}
		})
	}
}

func TestWrongFiles(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		path    string
		want    string
		reason  string
	}{
		"directory": {
			prepare: func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
			want:    "is a directory", reason: "a directory is not a file",
		},
		"no database": {
			prepare: func(t *testing.T, path string) {
				must(t, os.WriteFile(path, []byte(strings.Repeat("no database", 500)), 0o600))
			},
			want: "not a SQLite database", reason: "somebody else's file is left alone",
		},
		"damaged": {
			prepare: damage,
			want:    "damaged", reason: "a damaged database is found at the start",
		},
		"file above": {
			prepare: func(t *testing.T, path string) { must(t, os.WriteFile(filepath.Dir(path), nil, 0o600)) },
			path:    filepath.Join("file", "state.db"),
			want:    "create the directory", reason: "a directory cannot be made below a file",
		},
		"parameters": {
			path: "state.db?mode=memory", want: "choose another",
			reason: "SQLite would take a part of the path for something else",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path == "" {
				c.path = "state.db"
			}
			path := filepath.Join(t.TempDir(), c.path)
			if c.prepare != nil {
				c.prepare(t, path)
			}
			s := File{Path: path}.Open()
			err := s.Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: got %v, want an error with %q and the path", c.reason, err, c.want)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root writes everywhere")
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o500))
	path := filepath.Join(dir, "state.db")
	err := File{Path: path}.Open().Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "writable") {
		t.Errorf("got %v, want an error with the path that says writable", err)
	}
}

// TestKilled opens a copy of the files of a server that runs: what a killed
// process leaves.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	s := File{Path: filepath.Join(dir, "state.db")}.Open()
	must(t, s.Start(t.Context()))
	defer func() { must(t, s.Stop(context.Background())) }()
	c, err := s.Client()
	must(t, err)
	for i := range 500 {
		_, err := c.Put(t.Context(), fmt.Sprintf("/t/%d", i), "1")
		must(t, err)
	}
	left := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(left, os.DirFS(dir)))
	again := File{Path: filepath.Join(left, "state.db")}.Open()
	must(t, again.Start(t.Context()))
	defer func() { must(t, again.Stop(context.Background())) }()
	c, err = again.Client()
	must(t, err)
	r, err := c.Get(t.Context(), "/t/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	if r.Count != 500 {
		t.Errorf("got %d keys, want the 500 acknowledged", r.Count)
	}
}

// damage makes a database with a good header and broken pages.
func damage(t *testing.T, path string) {
	s := File{Path: path}.Open()
	must(t, s.Start(t.Context()))
	must(t, s.Stop(t.Context()))
	data, err := os.ReadFile(path)
	must(t, err)
	for i := 100; i < len(data); i++ {
		data[i] = 0xff
	}
	must(t, os.WriteFile(path, data, 0o600))
}

// TestDamagedRows: what cannot be read is an error, never an object less. A server
// that believes it would delete what the missing object owned.
func TestDamagedRows(t *testing.T) {
	const keys = 200
	path := filepath.Join(t.TempDir(), "state.db")
	s := File{Path: path}.Open()
	must(t, s.Start(t.Context()))
	c, err := s.Client()
	must(t, err)
	name := func(i int) string { return fmt.Sprintf("/damaged/%03d", i) }
	for i := range keys {
		absent := clientv3.Compare(clientv3.ModRevision(name(i)), "=", 0)
		_, err := c.Txn(t.Context()).If(absent).Then(clientv3.OpPut(name(i), strings.Repeat("x", 2000))).Commit()
		must(t, err)
	}
	_ = c.Close()
	must(t, s.Stop(t.Context()))
	data, err := os.ReadFile(path)
	must(t, err)
	const page = 4096
	middle := len(data) / page / 2 * page
	clear(data[middle : middle+20*page])
	must(t, os.WriteFile(path, data, 0o600))

	s = File{Path: path}.Open()
	must(t, s.Start(t.Context()))
	defer func() { must(t, s.Stop(context.Background())) }()
	c, err = s.Client()
	must(t, err)
	defer c.Close()
	failed := 0
	for i := range keys {
		r, err := c.Get(t.Context(), name(i))
		switch {
		case err != nil:
			failed++
		case len(r.Kvs) == 0:
			t.Errorf("%s is not found, and there is no error", name(i))
		}
	}
	if failed == 0 {
		t.Error("all is read: the damage is in the wrong place")
	}
	if r, err := c.Get(t.Context(), "/damaged/", clientv3.WithPrefix()); err == nil {
		t.Errorf("the list has %d of %d, and there is no error", len(r.Kvs), keys)
	}
}

// openLog opens a file until the test ends.
func openLog(t testing.TB, f File) *log {
	t.Helper()
	opened, err := open(t.Context(), f, 0, func(int64, []*revision.Event, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return opened.(*log)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCopiedWithoutLog: a copy of a file that is in use, without SQLite's log, lacks what was written last. It
// is opened, with revisions that nobody has seen. One with the log, or of a stopped server, is as it was.
func TestCopiedWithoutLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tryOpen := func(name string) (revision.Log, error) {
		return open(t.Context(), File{Path: filepath.Join(dir, name)}, 0, func(int64, []*revision.Event, int64) {})
	}
	open := func(name string) *log {
		t.Helper()
		l, err := tryOpen(name)
		must(t, err)
		return l.(*log)
	}
	l := open("state.db")
	for i := range 10 {
		put(t, l, fmt.Sprintf("/t/%d", i), "1")
	}
	last := put(t, l, "/t/last", "1")
	duplicate := func(from, to string, suffixes ...string) {
		t.Helper()
		for _, suffix := range suffixes {
			content, err := os.ReadFile(filepath.Join(dir, from+suffix))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, to+suffix), content, 0o600))
		}
	}
	copied := func(name string, suffixes ...string) int64 {
		t.Helper()
		duplicate("state.db", name, suffixes...)
		c := open(name)
		current, _, err := c.Current(t.Context())
		must(t, err)
		must(t, c.Close(t.Context()))
		return current
	}
	if got := copied("without.db", ""); got <= last+1 {
		t.Errorf("without the log, the newest revision is %d, want it far above %d", got, last)
	}
	if got := copied("with.db", "", "-wal"); got != last {
		t.Errorf("with the log, the newest revision is %d, want %d", got, last)
	}
	// A server that is killed, and once more while it starts, leaves the log where it is.
	duplicate("state.db", "killed.db", "", "-wal")
	starting := &log{path: filepath.Join(dir, "killed.db")}
	if isCopy, err := starting.connect(t.Context()); isCopy || err != nil {
		t.Errorf("with the log, it is a copy without: %v, %v", isCopy, err)
	}
	duplicate("killed.db", "again.db", "", "-wal")
	must(t, starting.db.Close())
	again := open("again.db")
	if got, _, err := again.Current(t.Context()); got != last || err != nil {
		t.Errorf("of a server that was killed while it started, the newest revision is %d, want %d", got, last)
	}
	must(t, again.Close(t.Context()))
	// So does one that cannot start.
	mark := func(n int) {
		t.Helper()
		_, err := l.db.ExecContext(t.Context(), setMeta, metaLayout, n)
		must(t, err)
	}
	mark(layout + 1)
	duplicate("state.db", "newer.db", "", "-wal")
	mark(layout)
	_, err := tryOpen("newer.db")
	if err == nil || !strings.Contains(err.Error(), "use a newer version") {
		t.Errorf("a file of a newer version is opened, %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "newer.db-wal")); err != nil {
		t.Errorf("after a start that failed: %v, want the log that says that nothing is missing", err)
	}
	must(t, l.Close(t.Context()))
	if got := copied("stopped.db", ""); got != last {
		t.Errorf("after a stop, the newest revision is %d, want %d", got, last)
	}
}
