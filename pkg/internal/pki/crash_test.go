package pki

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLoadAfterCrash stops the writing of files after each one of them, of which
// the last may be a temporary file that is half written.
func TestLoadAfterCrash(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		// later is when the crash happens; an identity from epoch exists if old.
		later time.Duration
		old   bool
	}{
		"first start": {reason: "nothing was there before"},
		"renewal":     {reason: "old and new leaves are mixed", later: 350 * day, old: true},
	}
	for name, tc := range cases {
		for done := range len(fileNames()) + 1 {
			t.Run(fmt.Sprintf("%s/%d", name, done), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				l := &ledger{dir: dir, now: epoch(), files: map[string][]byte{}}
				if tc.old {
					mustLoad(t, dir, Request{Clock: at(0)})
					l.files = mustRead(t, dir)
				}
				l.now = epoch().Add(tc.later)
				if _, err := l.identity(Request{}); err != nil {
					t.Fatal(err)
				}
				if done > len(l.changed) {
					t.Skip("fewer files are written")
				}
				for _, f := range l.changed[:done] {
					mustWrite(t, f.data, dir, f.name)
				}
				for _, f := range l.changed[done:] {
					mustWrite(t, f.data[:len(f.data)/2], dir, tempPrefix(f.name)+"1")
				}
				id := mustLoad(t, dir, Request{Clock: at(tc.later)})
				checkIdentity(t, id, l.now)
				if diff := cmp.Diff(id, mustLoad(t, dir, Request{Clock: at(tc.later)})); diff != "" {
					t.Errorf("%s: not stable (-first +second):\n%s", tc.reason, diff)
				}
				if temps, _ := filepath.Glob(filepath.Join(dir, ".*.tmp-*")); len(temps) > 0 {
					t.Errorf("%s: left %v", tc.reason, temps)
				}
			})
		}
	}
}

// FuzzLoad tries any content of a folder. What loads has to be whole and stable,
// what does not load has to be an error.
func FuzzLoad(f *testing.F) {
	dir := f.TempDir()
	mustLoad(f, dir, Request{Clock: at(0)})
	good := mustRead(f, dir)
	f.Add(good[caCert], good[caKey], good["server.crt"], good["server.key"])
	f.Add(good["server.crt"], good["server.key"], good[caCert], good[caKey])
	f.Add(good[caCert], good[caKey], []byte("-----BEGIN CERTIFICATE-----\n"), []byte{})
	f.Add([]byte(nil), good[caKey], good["admin.crt"], good[caKey])
	f.Fuzz(func(t *testing.T, ca, cakey, server, serverkey []byte) {
		l := &ledger{now: epoch(), files: map[string][]byte{}}
		for name, data := range map[string][]byte{caCert: ca, caKey: cakey, "server.crt": server, "server.key": serverkey} {
			if len(data) > 0 {
				l.files[name] = data
			}
		}
		id, err := l.identity(Request{})
		if err != nil {
			return
		}
		checkIdentity(t, id, epoch())
		l.changed = nil
		again, err := l.identity(Request{})
		if err != nil || len(l.changed) > 0 {
			t.Fatalf("second load: %v, changed %d files", err, len(l.changed))
		}
		if diff := cmp.Diff(id, again); diff != "" {
			t.Errorf("second load (-first +second):\n%s", diff)
		}
	})
}

func BenchmarkIssueInMemory(b *testing.B) {
	for b.Loop() {
		mustLoad(b, "", Request{})
	}
}

func BenchmarkIssue(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "pki")
	for b.Loop() {
		mustLoad(b, dir, Request{})
		b.StopTimer()
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	mustLoad(b, dir, Request{})
	for b.Loop() {
		mustLoad(b, dir, Request{})
	}
}

func BenchmarkWriteKubeconfig(b *testing.B) {
	id := mustLoad(b, "", Request{})
	path := filepath.Join(b.TempDir(), "admin.kubeconfig")
	b.Run("new", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := WriteKubeconfig(path, id.Kubeconfig(fmt.Sprintf("https://127.0.0.1:%d", 1+i%2), "")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			if err := WriteKubeconfig(path, id.Kubeconfig("https://127.0.0.1:1", "")); err != nil {
				b.Fatal(err)
			}
		}
	})
}
