package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
)

// directory describes an etcd in a new directory.
func directory(t testing.TB) controlplane.Storage {
	return Embedded{Dir: filepath.Join(t.TempDir(), "sub", "data")}
}

// unsynced describes the same without waiting for the disk.
func unsynced(t testing.TB) controlplane.Storage {
	return Embedded{Dir: filepath.Join(t.TempDir(), "sub", "data"), UnsafeNoSync: true}
}

func TestEmbedded(t *testing.T) { storagetest.Run(t, directory, storagetest.Size(size)) }

// size is what the database takes. The log beside it is as large whatever is
// written.
func size(s controlplane.Storage) int64 {
	info, err := os.Stat(filepath.Join(s.(Embedded).Dir, memberDir, "snap", "db"))
	if err != nil {
		return 0
	}
	return info.Size()
}

func TestEmbeddedPersistence(t *testing.T) {
	for name, open := range map[string]func(testing.TB) controlplane.Storage{
		"synced":   directory,
		"unsynced": unsynced,
		"snapshots": func(t testing.TB) controlplane.Storage {
			return Embedded{Dir: filepath.Join(t.TempDir(), "data"), SnapshotCount: 7}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each on directories of its own
			storagetest.RunPersistent(t, open, storagetest.RenewsLeases())
		})
	}
}

func BenchmarkEmbeddedStart(b *testing.B)          { storagetest.BenchmarkStart(b, directory) }
func BenchmarkEmbeddedStartUnsynced(b *testing.B)  { storagetest.BenchmarkStart(b, unsynced) }
func BenchmarkEmbeddedCreate(b *testing.B)         { storagetest.BenchmarkCreate(b, directory) }
func BenchmarkEmbeddedCreateUnsynced(b *testing.B) { storagetest.BenchmarkCreate(b, unsynced) }

func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	run(t, dir)
	for _, name := range []string{filepath.Dir(dir), dir} {
		info, err := os.Stat(name)
		must(t, err)
		if info.Mode() != 0o700|os.ModeDir {
			t.Errorf("%s has mode %v, want 0700", name, info.Mode())
		}
	}
}

func TestWrongDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		path    string
		want    string
		reason  string
	}{
		"file": {
			prepare: func(t *testing.T, dir string) { must(t, os.WriteFile(dir, nil, 0o600)) },
			want:    "is a file", reason: "a file is not a directory",
		},
		"below a file": {
			prepare: func(t *testing.T, dir string) { must(t, os.WriteFile(filepath.Dir(dir), nil, 0o600)) },
			path:    filepath.Join("file", "data"),
			want:    "create", reason: "a directory cannot be made below a file",
		},
		"no database": {
			prepare: func(t *testing.T, dir string) { spoil(t, dir, 0, 1<<14, "member/snap/db") },
			want:    "damaged", reason: "etcd would panic in a goroutine of its own",
		},
		"damaged database": {
			prepare: func(t *testing.T, dir string) { spoil(t, dir, 1<<13, 1<<20, "member/snap/db") },
			want:    "damaged", reason: "the pages of the database are wrong",
		},
		"truncated database": {
			prepare: func(t *testing.T, dir string) {
				run(t, dir)
				must(t, os.Truncate(filepath.Join(dir, "member/snap/db"), 1<<13))
			},
			want: "damaged", reason: "the pages of the database are missing",
		},
		"missing database": {
			prepare: func(t *testing.T, dir string) {
				run(t, dir)
				run(t, dir)
				must(t, os.Remove(filepath.Join(dir, "member/snap/db")))
			},
			want: "", reason: "etcd makes it again from its log, or says that it is missing",
		},
		"damaged log": {
			prepare: func(t *testing.T, dir string) { spoil(t, dir, 100, 400, "member/wal/*.wal") },
			want:    "damaged", reason: "etcd's log has checksums",
		},
		"log without head": {
			prepare: func(t *testing.T, dir string) { spoil(t, dir, 0, 100, "member/wal/*.wal") },
			want:    "damaged", reason: "etcd panics over a log that does not say whose it is",
		},
		"log without end": {
			prepare: func(t *testing.T, dir string) {
				run(t, dir)
				names, err := filepath.Glob(filepath.Join(dir, "member/wal/*.wal"))
				must(t, err)
				must(t, os.Truncate(names[0], 2000))
			},
			want: "its end is lost", reason: "etcd would wait for ever, or drop what is written next",
		},
		"log is a file": {
			prepare: func(t *testing.T, dir string) {
				must(t, os.MkdirAll(filepath.Join(dir, "member"), 0o700))
				must(t, os.WriteFile(filepath.Join(dir, "member", "wal"), nil, 0o600))
			},
			want: "", reason: "etcd replaces it",
		},
		"snapshots are a file": {
			prepare: func(t *testing.T, dir string) {
				must(t, os.MkdirAll(filepath.Join(dir, "member"), 0o700))
				must(t, os.WriteFile(filepath.Join(dir, "member", "snap"), nil, 0o600))
			},
			want: "snap", reason: "etcd ends the process when it cannot create that directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path == "" {
				c.path = "data"
			}
			dir := filepath.Join(abandonedDir(t), c.path)
			c.prepare(t, dir)
			s := Embedded{Dir: dir}.Open()
			err := s.Start(t.Context())
			t.Log(err)
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want an error with %q and the directory", c.reason, err, c.want)
			}
			must(t, s.Stop(t.Context()))
		})
	}
}

// TestInterruptedBootstrap: a directory whose first start was interrupted, at any
// point, is used as a new one; one that held anything is never emptied.
func TestInterruptedBootstrap(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	run(t, dir)
	if _, err := os.Stat(filepath.Join(dir, bootstrapMark)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a start the mark is there: %v", err)
	}
	before, err := os.Stat(filepath.Join(dir, memberDir))
	must(t, err)
	if isNew, err := beginBootstrap(dir); isNew || err != nil {
		t.Errorf("a directory with a member: new %v, %v", isNew, err)
	}
	run(t, dir)
	after, err := os.Stat(filepath.Join(dir, memberDir))
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("a second start made the member again")
	}

	// What an interrupted start leaves: the mark, and a log without an entry.
	interrupted := filepath.Join(t.TempDir(), "data")
	must(t, os.MkdirAll(filepath.Join(interrupted, memberDir, "wal"), 0o700))
	must(t, os.WriteFile(filepath.Join(interrupted, memberDir, "wal", "0.tmp"), []byte("half"), 0o600))
	must(t, os.WriteFile(filepath.Join(interrupted, bootstrapMark), nil, 0o600))
	run(t, interrupted)
	if _, err := os.Stat(filepath.Join(interrupted, memberDir, "wal", "0.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the interrupted start left is there: %v", err)
	}
}

// abandonedDir is a temporary directory in which an etcd that failed inside may
// still make files for a moment after it was stopped.
func abandonedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	must(t, err)
	t.Cleanup(func() {
		for end := time.Now().Add(patience); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}

func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root writes everywhere")
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o500))
	err := Embedded{Dir: dir}.Open().Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "writable") {
		t.Errorf("got %v, want an error with the directory that says writable", err)
	}
}

// TestKilled opens a copy of the files of an etcd that runs: what a killed
// process leaves.
func TestKilled(t *testing.T) {
	for name, unsafe := range map[string]bool{"synced": false, "unsynced": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := Embedded{Dir: dir, UnsafeNoSync: unsafe}.Open()
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
			again := Embedded{Dir: left}.Open()
			must(t, again.Start(t.Context()))
			defer func() { must(t, again.Stop(context.Background())) }()
			c, err = again.Client()
			must(t, err)
			r, err := c.Get(t.Context(), "/t/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			must(t, err)
			if r.Count != 500 {
				t.Errorf("got %d keys, want the 500 acknowledged", r.Count)
			}
		})
	}
}

// run starts an etcd in the directory and stops it again.
func run(t *testing.T, dir string) {
	t.Helper()
	s := Embedded{Dir: dir}.Open()
	must(t, s.Start(t.Context()))
	c, err := s.Client()
	must(t, err)
	_, err = c.Put(t.Context(), "/t/a", strings.Repeat("x", 1<<16))
	must(t, err)
	must(t, s.Stop(context.Background()))
}

// spoil overwrites a part of a file of an etcd that ran in the directory.
func spoil(t *testing.T, dir string, from, to int64, pattern string) {
	t.Helper()
	run(t, dir)
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	must(t, err)
	file, err := os.OpenFile(names[0], os.O_WRONLY, 0)
	must(t, err)
	info, err := file.Stat()
	must(t, err)
	junk := make([]byte, min(to, info.Size())-from)
	for i := range junk {
		junk[i] = byte(i*7 + 13)
	}
	_, err = file.WriteAt(junk, from)
	must(t, err)
	must(t, file.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStopWhileWatched stops an etcd that still reads for its watches.
func TestStopWhileWatched(t *testing.T) {
	for range 5 {
		s := Embedded{Dir: t.TempDir(), UnsafeNoSync: true}.Open()
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		client, err := s.Client()
		if err != nil {
			t.Fatal(err)
		}
		var work sync.WaitGroup
		for range 20 {
			events := client.Watch(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithPrevKV())
			work.Go(func() {
				for range events {
				}
			})
		}
		written := make(chan struct{})
		for i := range 4 {
			work.Go(func() {
				for n := 0; ; n++ {
					if _, err := client.Put(t.Context(), fmt.Sprint("/", i), strings.Repeat("x", 1000)); err != nil {
						return // it stops
					}
					if n == 200 && i == 0 {
						close(written)
					}
				}
			})
		}
		<-written
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		work.Wait()
	}
}
