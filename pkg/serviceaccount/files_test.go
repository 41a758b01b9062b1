package serviceaccount_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestFiles: Build reads the keys of KeyFile, and says what is wrong with them. It makes none.
func TestFiles(t *testing.T) {
	t.Parallel()
	_, key := newKey(t)
	const hidden = "hidden-secret"
	for name, c := range map[string]struct {
		reason  string
		dir     bool // the field is Dir
		content string
		mode    os.FileMode // 0: there is no file
		want    string      // empty: all is well
	}{
		"right":       {"it signs", false, string(key), 0o600, ""},
		"missing":     {"there is no file", false, "", 0, "field KeyFile: open FILE: no such file"},
		"readable":    {"everybody could sign", false, string(key), 0o604, "field KeyFile: every user of this machine has permissions on it (mode 0604): run chmod 0600 FILE"},
		"wrong":       {"it is no key", false, hidden, 0o600, "field KeyFile: FILE: it has no key in PEM"},
		"damaged":     {"it is no key", false, "-----BEGIN EC PRIVATE KEY-----\n" + hidden + "\n", 0o600, "field KeyFile: FILE: only 0 of 1 PEM blocks"},
		"dir missing": {"it is made at the first start", true, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "service-account.key")
			if c.mode != 0 {
				write(t, file, []byte(c.content))
				if err := os.Chmod(file, c.mode); err != nil {
					t.Fatal(err)
				}
			}
			part := serviceaccount.Tokens{KeyFile: file}
			if c.dir {
				part = serviceaccount.Tokens{Dir: filepath.Dir(file)}
			}
			_, err := controlplane.New("test").Storage(memory.Store{}).With(core.Namespaces{}, core.ServiceAccounts{}, part).Build()
			want := strings.ReplaceAll(c.want, "FILE", file)
			switch {
			case (err == nil) != (want == ""):
				t.Errorf("%s: %v, want %q", c.reason, err, want)
			case err != nil && !strings.Contains(err.Error(), `part "serviceaccount.Tokens": `+want):
				t.Errorf("%s: %v, want %q", c.reason, err, want)
			case err != nil && strings.Contains(err.Error(), hidden):
				t.Errorf("the error tells a secret: %v", err)
			}
			if _, err := os.Stat(file); c.mode == 0 && err == nil {
				t.Error("Build made a key")
			}
		})
	}
}
