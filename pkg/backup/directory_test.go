package backup_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/backup"
)

// TestWriteFileAnew: what somebody has put where a backup is written gets nothing of it.
func TestWriteFileAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	elsewhere := filepath.Join(dir, "elsewhere")
	for what, put := range map[string]func(name string) error{
		"a file":   func(name string) error { return errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, 0o666)) },
		"a link":   func(name string) error { return os.Symlink(elsewhere, name) },
		"leftover": func(name string) error { return os.WriteFile(name, []byte("much more than the backup has"), 0o600) },
	} {
		name := filepath.Join(dir, what)
		if err := put(name + ".incomplete"); err != nil {
			t.Fatal(err)
		}
		_, _, err := backup.WriteFile(name, func(to io.Writer) (backup.Info, error) {
			_, err := to.Write([]byte("backup"))
			return backup.Info{}, err
		})
		stat, err1 := os.Lstat(name)
		if err := errors.Join(err, err1); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got, _ := os.ReadFile(name); string(got) != "backup" || stat.Mode() != 0o600 {
			t.Errorf("%s: %q with mode %v", what, got, stat.Mode())
		}
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("a link was followed")
	}
}

// TestWriteFile: what fails leaves nothing, and what was there.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "a.backup")
	if err := os.WriteFile(name, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := backup.WriteFile(name, func(to io.Writer) (backup.Info, error) {
		_, _ = to.Write([]byte("half"))
		return backup.Info{}, errors.New("cut off")
	})
	if got, _ := os.ReadFile(name); err == nil || string(got) != "before" {
		t.Errorf("%v, %q", err, got)
	}
	if all, _ := os.ReadDir(filepath.Dir(name)); len(all) != 1 {
		t.Errorf("there is %v", all)
	}
}
