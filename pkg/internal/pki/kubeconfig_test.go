package pki

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

func TestWriteKubeconfig(t *testing.T) {
	t.Parallel()
	id, other := mustLoad(t, "", Request{}), mustLoad(t, "", Request{})
	ours, err := clientcmd.Write(*other.Kubeconfig("https://old", ""))
	if err != nil {
		t.Fatal(err)
	}
	more := other.Kubeconfig("https://old", "")
	more.Contexts["work"] = more.Contexts[DefaultContext]
	merged, err := clientcmd.Write(*more)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		// existing is the file's content, nil for no file.
		existing []byte
		path     string
		name     string
		err      error
	}{
		"new":           {reason: "there is no file", path: "admin.kubeconfig"},
		"new folders":   {reason: "parent folders are created", path: "a/b/admin.kubeconfig"},
		"named":         {reason: "a context name is used throughout", path: "admin.kubeconfig", name: "fruit"},
		"ours":          {reason: "our own file is replaced", path: "admin.kubeconfig", existing: ours},
		"empty":         {reason: "an empty file has nothing to lose", path: "admin.kubeconfig", existing: []byte("\n")},
		"other context": {reason: "a file with more in it is somebody's", path: "config", existing: merged, err: ErrForeign},
		"other name":    {reason: "a file of another name is somebody's", path: "config", existing: ours, name: "fruit", err: ErrForeign},
		"skeleton":      {reason: "a kubeconfig that we did not write", path: "config", existing: []byte("apiVersion: v1\nkind: Config\n"), err: ErrForeign},
		"other kind":    {reason: "a manifest is not a kubeconfig", path: "secret.yaml", existing: []byte("apiVersion: v1\nkind: Secret\n"), err: ErrForeign},
		"other yaml":    {reason: "settings are not a kubeconfig", path: "values.yaml", existing: []byte("a: b\n"), err: ErrForeign},
		"text":          {reason: "text is not a kubeconfig", path: "notes", existing: []byte("buy milk"), err: ErrForeign},
		"no path":       {reason: "nowhere to write to", path: "", err: fs.ErrInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := tc.path
			if path != "" {
				path = filepath.Join(t.TempDir(), filepath.FromSlash(path))
			}
			if tc.existing != nil {
				mustWrite(t, tc.existing, path)
			}
			want := id.Kubeconfig("https://127.0.0.1:6443", tc.name)
			err := WriteKubeconfig(path, want)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: error %v, want %v", tc.reason, err, tc.err)
			}
			if tc.err != nil {
				if !strings.Contains(err.Error(), path) {
					t.Errorf("%s: error %q does not name the file", tc.reason, err)
				}
				if data, err := os.ReadFile(path); tc.existing != nil && (err != nil || string(data) != string(tc.existing)) {
					t.Errorf("%s: the file changed", tc.reason)
				}
				return
			}
			checkKubeconfig(t, path, DefaultContext, tc.name)
			got, err := clientcmd.LoadFromFile(path)
			if err != nil {
				t.Fatal(err)
			}
			again, err := clientcmd.Write(*got)
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := clientcmd.Write(*want)
			if diff := cmp.Diff(string(wanted), string(again)); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

// checkKubeconfig checks a file's mode, its neighbours and its current context,
// which is the first name unless the second is given.
func checkKubeconfig(t *testing.T, path, byDefault, name string) {
	t.Helper()
	if name == "" {
		name = byDefault
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != name || config.Contexts[name] == nil {
		t.Errorf("current context %q, want %q", config.CurrentContext, name)
	}
	if info, err := os.Stat(path); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o600) {
		t.Errorf("%s: %v, %v, want 0600", path, info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%d files beside %s, %v, want none", len(entries)-1, path, err)
	}
}

func TestWriteKubeconfigModes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows has no such modes")
	}
	config := mustLoad(t, "", Request{}).Kubeconfig("https://127.0.0.1", "")
	path := filepath.Join(t.TempDir(), "parent", "admin.kubeconfig")
	for range 2 {
		if err := WriteKubeconfig(path, config); err != nil {
			t.Fatal(err)
		}
		checkKubeconfig(t, path, DefaultContext, "")
		if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("parent: %v, %v, want 0700", info.Mode(), err)
		}
		// The same content that everybody can read is not good enough.
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWriteKubeconfigSame(t *testing.T) {
	t.Parallel()
	config := mustLoad(t, "", Request{}).Kubeconfig("https://127.0.0.1", "")
	path := filepath.Join(t.TempDir(), "admin.kubeconfig")
	var infos [2]os.FileInfo
	for i := range infos {
		if err := WriteKubeconfig(path, config); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		infos[i] = info
	}
	if runtime.GOOS != "windows" && !os.SameFile(infos[0], infos[1]) {
		t.Error("a file that was up to date was written again")
	}
}

func TestWriteKubeconfigUnwritable(t *testing.T) {
	t.Parallel()
	config := mustLoad(t, "", Request{}).Kubeconfig("https://127.0.0.1", "")
	dir := t.TempDir()
	mustWrite(t, nil, dir, "file")
	for name, path := range map[string]string{
		"below a file": filepath.Join(dir, "file", "admin.kubeconfig"),
		"a folder":     dir,
		"a device":     os.DevNull,
	} {
		if err := WriteKubeconfig(path, config); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names %s", name, err, path)
		}
	}
}

func TestWriteKubeconfigLink(t *testing.T) {
	t.Parallel()
	config := mustLoad(t, "", Request{}).Kubeconfig("https://127.0.0.1", "")
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	mustWrite(t, nil, file)
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	if err := WriteKubeconfig(link, config); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is now %v, %v", info.Mode(), err)
	}
	if _, err := clientcmd.LoadFromFile(file); err != nil {
		t.Error(err)
	}
}

// TestWriteKubeconfigLeftovers checks that a crash's old temporary file goes and
// that one which may be in use stays.
func TestWriteKubeconfigLeftovers(t *testing.T) {
	t.Parallel()
	config := mustLoad(t, "", Request{}).Kubeconfig("https://127.0.0.1", "")
	dir := t.TempDir()
	old, young := filepath.Join(dir, ".admin.tmp-1"), filepath.Join(dir, ".admin.tmp-2")
	mustWrite(t, nil, old)
	mustWrite(t, nil, young)
	before := time.Now().Add(-2 * staleTemp)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	if err := WriteKubeconfig(filepath.Join(dir, "admin"), config); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("old leftover: %v, want it gone", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("young file: %v, want it kept", err)
	}
}

// TestWriteKubeconfigConcurrent checks that readers only ever see whole files.
func TestWriteKubeconfigConcurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin.kubeconfig")
	var group sync.WaitGroup
	for range 4 {
		config := mustLoad(t, "", Request{}).Kubeconfig("https://127.0.0.1", "")
		group.Go(func() {
			for range 5 {
				if err := WriteKubeconfig(path, config); err != nil {
					t.Error(err)
				}
				if config, err := clientcmd.BuildConfigFromFlags("", path); err != nil || config.CAData == nil {
					t.Errorf("read: %v", err)
				}
			}
		})
	}
	group.Wait()
	checkKubeconfig(t, path, DefaultContext, "")
}
