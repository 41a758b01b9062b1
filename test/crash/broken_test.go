package crash

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestBrokenFiles starts servers on files that are damaged or cannot be. Each
// says on stderr what is wrong with which file, and ends with status 1.
func TestBrokenFiles(t *testing.T) {
	garbage := bytes.Repeat([]byte("garbage "), 4096)
	tests := map[string]struct {
		reason string
		// prepare breaks something below the directory and returns the
		// arguments and what stderr must name.
		prepare func(t *testing.T, dir string) (args []string, named string)
	}{
		"sqlite, another file": {
			reason: "a file that is no database is never overwritten",
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "state.db")
				mustWrite(t, path, garbage)
				return serveArgs(dir, "sqlite:"+path), path
			},
		},
		"sqlite, damaged": {
			reason: "the header is right and the rest is not",
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "state.db")
				once(t, dir, "sqlite:"+path)
				overwrite(t, path, 100, garbage[:4000])
				return serveArgs(dir, "sqlite:"+path), path
			},
		},
		"sqlite, a directory": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "state.db")
				if err := os.Mkdir(path, 0o755); err != nil {
					t.Fatal(err)
				}
				return serveArgs(dir, "sqlite:"+path), path
			},
		},
		"etcd, a damaged database": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "etcd")
				once(t, dir, "etcd:"+path)
				overwrite(t, filepath.Join(path, "member", "snap", "db"), 0, garbage)
				return serveArgs(dir, "etcd:"+path), path
			},
		},
		"etcd, a damaged log": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "etcd")
				once(t, dir, "etcd:"+path)
				logs, err := filepath.Glob(filepath.Join(path, "member", "wal", "*.wal"))
				if err != nil || len(logs) == 0 {
					t.Fatalf("no log of etcd: %v", err)
				}
				overwrite(t, logs[0], 0, garbage)
				return serveArgs(dir, "etcd:"+path), path
			},
		},
		"etcd, an empty database": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "etcd")
				once(t, dir, "etcd:"+path)
				mustWrite(t, filepath.Join(path, "member", "snap", "db"), nil)
				return serveArgs(dir, "etcd:"+path), path
			},
		},
		"etcd, below a file": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				mustWrite(t, filepath.Join(dir, "file"), nil)
				path := filepath.Join(dir, "file", "etcd")
				return serveArgs(dir, "etcd:"+path), path
			},
		},
		"sqlite, below a file": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				mustWrite(t, filepath.Join(dir, "file"), nil)
				path := filepath.Join(dir, "file", "state.db")
				return serveArgs(dir, "sqlite:"+path), path
			},
		},
		"data directory below a file": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				mustWrite(t, filepath.Join(dir, "file"), nil)
				path := filepath.Join(dir, "file", "data")
				return serveArgs(path, "memory"), path
			},
		},
		"kubeconfig below a file": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				mustWrite(t, filepath.Join(dir, "file"), nil)
				path := filepath.Join(dir, "file", "kubeconfig")
				return append(serveArgs(dir, "memory"), "--kubeconfig", path), path
			},
		},
		"crds that are none": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				mustWrite(t, filepath.Join(dir, "crds", "bad.yaml"), garbage)
				return append(serveArgs(dir, "memory"), "--crds", filepath.Join(dir, "crds")), "bad.yaml"
			},
		},
		"sqlite in use": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "state.db")
				serve(t, dir, "sqlite:"+path)
				return serveArgs(dir, "sqlite:"+path), path
			},
		},
		"etcd in use": {
			prepare: func(t *testing.T, dir string) ([]string, string) {
				path := filepath.Join(dir, "etcd")
				serve(t, dir, "etcd:"+path)
				return serveArgs(dir, "etcd:"+path), path
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args, named := tc.prepare(t, t.TempDir())
			text := fails(t, exec.Command(binary, args...))
			if !strings.Contains(text, named) {
				t.Errorf("%s: stderr does not name %s", tc.reason, named)
			}
			t.Logf("%s", text)
		})
	}
}

// TestGarbageKeys breaks each file of the keys and certificates in turn.
func TestGarbageKeys(t *testing.T) {
	whole := t.TempDir()
	once(t, whole, "memory")
	files, err := filepath.Glob(filepath.Join(whole, "pki", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of keys: %v", err)
	}
	for _, broken := range files {
		name := filepath.Base(broken)
		for how, content := range map[string][]byte{
			"garbage": []byte("garbage"), "empty": {}, "no key": []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"),
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				if strings.HasSuffix(name, ".lock") || name == "lock" {
					t.Skip("nobody reads it")
				}
				t.Parallel()
				dir := t.TempDir()
				for _, f := range files {
					b, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					mustWrite(t, filepath.Join(dir, "pki", filepath.Base(f)), b)
				}
				path := filepath.Join(dir, "pki", name)
				mustWrite(t, path, content)
				text := fails(t, exec.Command(binary, serveArgs(dir, "memory")...))
				if !strings.Contains(text, path) {
					t.Errorf("stderr does not name %s", path)
				}
				t.Logf("%s", text)
				if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
					t.Errorf("the file was changed: %v", err)
				}
			})
		}
	}
}

// TestReadOnlyDirectory starts servers that may not write to their directory.
// The superuser may write anywhere, so for it they run as somebody else.
func TestReadOnlyDirectory(t *testing.T) {
	for name, storage := range storages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent, err := os.MkdirTemp("", "sailplane-readonly-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(parent) })
			dir := filepath.Join(parent, "data")
			once(t, dir, storage(dir))
			for _, d := range []string{parent, dir} {
				if err := os.Chmod(d, 0o555); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { _ = os.Chmod(parent, 0o755); _ = os.Chmod(dir, 0o755) })
			cmd := exec.Command(binary, serveArgs(dir, storage(dir))...)
			if os.Getuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			if text := fails(t, cmd); !strings.Contains(text, dir) {
				t.Errorf("stderr does not name %s", dir)
			} else {
				t.Logf("%s", text)
			}
		})
	}
}

// once runs a server until it is ready and stops it.
func once(t *testing.T, dir, storage string) {
	t.Helper()
	if err := serve(t, dir, storage).Interrupt(); err != nil {
		t.Fatal(err)
	}
}

// overwrite replaces bytes in the middle of a file.
func overwrite(t *testing.T, path string, offset int64, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(content, offset); err != nil {
		t.Fatal(err)
	}
}
