package lending

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/test/lending/testserver"
)

const (
	// etcd3 is the package of Kubernetes whose tests run, and replaced the one below it that has their etcd.
	etcd3    = "k8s.io/apiserver/pkg/storage/etcd3"
	replaced = etcd3 + "/testserver"
	ours     = "github.com/sailplane-dev/sailplane/test/lending/testserver"
)

// exception is a test of Kubernetes that does not pass.
type exception struct {
	reason string
	// says is in what the test writes: it fails for no other reason.
	says string
}

// exceptions are by the names of tests. Each fails, or the table is wrong.
func exceptions() map[string]exception {
	return map[string]exception{
		"TestTooLargeResourceVersionErrorForWatchList": {
			reason: "it takes revision 102 for one of the future, as it is to an etcd that was just started; " +
				"the revisions of an EtcdStorage are those of the storage that has its data, which are larger",
			says: "Unexpected type of the event: BOOKMARK, expected: ERROR",
		},
		"TestWatch/WatchFromZero": {
			reason: "it watches from the revision of a compaction, which etcd allows, and expects an error, since etcd has " +
				"dropped the value before; an EtcdStorage, whose compaction is not the one of the storage, still has it and sends the event",
			says: "incorrect event type",
		},
	}
}

// TestUpstream runs Kubernetes' own tests of its etcd3 store through EtcdStorages, on each storage. All pass but
// the exceptions.
func TestUpstream(t *testing.T) {
	tests := filepath.Join(t.TempDir(), "etcd3.test")
	compile(t, tests)
	for _, name := range storages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, upstream(t, tests, testserver.Lender+"="+string(lend(t)), testserver.Storage+"="+name))
		})
	}
}

// compile builds the tests of etcd3 as those of a package in this folder, which is only in an overlay: one of
// what is in Go's module cache is not allowed. In place of Kubernetes' package they import ours; that is
// all that is changed in them.
func compile(t *testing.T, path string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", etcd3).Output()
	must(t, err)
	here, err := filepath.Abs("etcd3")
	must(t, err)
	sources, err := filepath.Glob(filepath.Join(string(bytes.TrimSpace(out)), "*.go"))
	must(t, err)
	dir, changed := t.TempDir(), 0
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		must(t, err)
		name := filepath.Base(source)
		if other := bytes.ReplaceAll(text, []byte(`"`+replaced+`"`), []byte(`"`+ours+`"`)); !bytes.Equal(other, text) {
			changed++
			source = filepath.Join(dir, name)
			must(t, os.WriteFile(source, other, 0o600))
		}
		overlay.Replace[filepath.Join(here, name)] = source
	}
	if changed == 0 {
		t.Fatalf("none of the %d files of %s imports %s: find out what their etcd is now", len(sources), etcd3, replaced)
	}
	text, err := json.Marshal(overlay)
	must(t, err)
	file := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(file, text, 0o600))
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-pgo=off", "-overlay", file, "-o", path, "./etcd3")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
}

// outcome is how a test went.
type outcome struct {
	action string // "pass", "fail", "skip", or "run" of one that has not ended
	output strings.Builder
}

// upstream runs the tests, with further variables in their environment, and returns how each went.
func upstream(t *testing.T, path string, environment ...string) map[string]*outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "test2json", path, "-test.v=test2json", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), environment...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run() // an error is that of a test, or of none
	all := map[string]*outcome{}
	for events := json.NewDecoder(&stdout); ; {
		var e struct{ Action, Test, Output string }
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		if all[e.Test] == nil {
			all[e.Test] = &outcome{}
		}
		if e.Action == "output" {
			all[e.Test].output.WriteString(e.Output)
		} else {
			all[e.Test].action = e.Action
		}
	}
	delete(all, "") // the tests together
	if len(all) == 0 {
		t.Fatalf("%s: ran no test: %v: %s", cmd, err, last(stderr.Bytes()))
	}
	return all
}

// check expects that all tests pass but the exceptions.
func check(t *testing.T, all map[string]*outcome) {
	t.Helper()
	but := exceptions()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := all[name]
		e, listed := but[name]
		switch {
		case listed && o.action == "pass":
			t.Errorf("%s passes: take it off the exceptions", name)
		case listed && !strings.Contains(o.output.String(), e.says):
			t.Errorf("%s does not say %q as the exceptions do, but:\n%s", name, e.says, last([]byte(o.output.String())))
		case !listed && o.action != "pass" && !excused(all, name):
			t.Errorf("%s does not pass (%s):\n%s", name, o.action, last([]byte(o.output.String())))
		}
	}
	for name, e := range but {
		if all[name] == nil {
			t.Errorf("%s did not run: take it off the exceptions if it exists no more (%s)", name, e.reason)
		}
	}
}

// excused tells whether a test fails only with others, below it, that fail as well and speak for themselves.
func excused(all map[string]*outcome, name string) bool {
	if all[name].action != "fail" {
		return false
	}
	for other, o := range all {
		if strings.HasPrefix(other, name+"/") && o.action == "fail" {
			return true
		}
	}
	return false
}
