package planetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// UpdateVariable is the environment variable that makes [Plane.Golden] write files.
const UpdateVariable = "PLANETEST_UPDATE"

// Golden compares [Plane.Content] with a file, such as "testdata/made.yaml", and
// fails the test when they differ. With the environment variable
// PLANETEST_UPDATE=1 it writes the file instead.
func (p *Plane) Golden(t TB, file string) {
	t.Helper()
	got := p.Content(t).YAML()
	if updating() {
		err := os.MkdirAll(filepath.Dir(file), 0o755) //nolint:gosec // files of a repository are everybody's
		if err == nil {
			err = os.WriteFile(file, []byte(got), 0o644) //nolint:gosec // as above
		}
		if err != nil {
			t.Fatalf("golden: %v", err)
		}
		return
	}
	want, err := os.ReadFile(file) //nolint:gosec // a test says what it reads
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("golden: there is no %s: set %s=1 to write it", file, UpdateVariable)
	}
	if err != nil {
		t.Fatalf("golden: %v", err)
	}
	if string(want) != got {
		t.Errorf("golden: the plane differs from %s (-file +plane; set %s=1 to write the file):\n%s",
			file, UpdateVariable, lineDiff(string(want), got))
	}
}

// updating tells whether golden files are written. A variable decides, and no
// flag, as tests may define a flag of the same name.
func updating() bool {
	value := os.Getenv(UpdateVariable)
	return value != "" && value != "0" && value != "false"
}
