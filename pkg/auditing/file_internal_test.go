package auditing

import (
	"os"
	"path/filepath"
	"testing"
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
