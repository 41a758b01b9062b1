package auditing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLogGoesOn: when a log could not be begun again after it was renamed, the
// next event tries to.
func TestLogGoesOn(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "logs")
	f := &file{path: filepath.Join(folder, "audit.log"), maxSize: 10}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	defer f.close()
	write := func() error {
		_, err := f.Write([]byte("an event\n"))
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if write() == nil {
			t.Error("an event is written without a folder")
		}
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("when the folder is there again: %v", err)
	}
	f.close()
	if write() == nil {
		t.Error("an event is written after the end")
	}
}

// TestRenameFails: a log that cannot be renamed grows, and is not begun again with each event.
func TestRenameFails(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	f := &file{path: filepath.Join(folder, "audit.log"), maxSize: 10}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	defer f.close()
	write := func() error {
		_, err := f.Write([]byte("an event\n"))
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	// Whatever the rights of whoever runs the test: a name that is too long is refused.
	f.path = filepath.Join(folder, strings.Repeat("a", 250)+".log")
	if err := write(); err == nil {
		t.Fatal("no error for a log that cannot be renamed")
	}
	f.path = filepath.Join(folder, "audit.log")
	f.retry = time.Now().Add(time.Hour)
	if err := f.begin(); err != nil {
		t.Fatal(err)
	}
	begun := f.out
	for range 10 {
		if err := write(); err != nil {
			t.Errorf("in the pause after a rename that failed: %v", err)
		}
	}
	if f.out != begun {
		t.Error("the file was begun again")
	}
	f.retry = time.Time{}
	if err := write(); err != nil || len(f.backups) != 1 {
		t.Errorf("after the pause: %v, %d renamed files", err, len(f.backups))
	}
}
