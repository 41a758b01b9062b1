package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReachable(t *testing.T) {
	t.Parallel()
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mirror/index/db.json" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(there.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "full", "index"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full", "index", "db.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ reason, database, want string }{
		"there":       {"a database that answers is asked", there.URL + "/mirror", ""},
		"not there":   {"another page is no database", there.URL, "404"},
		"closed":      {"nobody listens", closed.URL, "refused"},
		"files":       {"a copy on disk is a database", "file://" + filepath.ToSlash(dir) + "/full", ""},
		"empty":       {"an empty directory is none", "file://" + filepath.ToSlash(dir) + "/none", "no such file"},
		"no database": {"the variable may be wrong", "://", "missing protocol scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := reachable(t.Context(), c.database)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"", "golang.org/x/vuln/cmd/govulncheck", "golang.org/x/vuln/cmd/govulncheck@latest"} {
		if err := run(t.Context(), with, []string{"."}); err == nil || !strings.HasPrefix(err.Error(), "usage") {
			t.Errorf("%q: got %v, want the usage: a version is pinned", with, err)
		}
	}
}

// TestNamedDatabase: a database that was named has to be there; Go's own may be out of reach.
func TestNamedDatabase(t *testing.T) {
	t.Setenv("GOVULNDB", "file:///there/is/none")
	err := run(t.Context(), "golang.org/x/vuln/cmd/govulncheck@v1.0.0", []string{"."})
	if err == nil || !strings.Contains(err.Error(), "GOVULNDB") {
		t.Errorf("got %v, want an error that names GOVULNDB", err)
	}
}
