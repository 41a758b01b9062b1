package crd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// moduleDir is the folder of a module that test/inputs requires, which the go
// command downloads where it is missing. Without it a test is skipped, and in CI
// fails.
func moduleDir(t testing.TB, module string) string {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = filepath.Join("..", "..", "test", "inputs")
	out, err := download.Output()
	var found struct{ Dir, Error string }
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err == nil && found.Dir != "" {
		return found.Dir
	}
	if os.Getenv("SAILPLANE_CI") != "" {
		t.Fatalf("go mod download %s: %v %s", module, err, found.Error)
	}
	t.Skipf("the CRDs of %s cannot be had: %v %s", module, err, found.Error)
	return ""
}
