package security

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/insight"
)

const (
	// The log of TestAuditLog holds 512 KiB: what fills it fills a large one, later.
	auditFile, auditBackups = 128 << 10, 3
	auditTotal              = auditFile * (auditBackups + 1)
)

// TestAuditLog: who does something cannot have it forgotten.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "small", "audit.log")
	w := serve(t, auditing.Log{
		Name: "small", Path: path, MaxSize: auditFile, MaxBackups: auditBackups, Keep: 7 * 24 * time.Hour, Chain: true,
	})
	attack(t, w, auditAttempts(path))
}

func auditAttempts(path string) map[string]attempt {
	long := "?fieldManager=" + strings.Repeat("a", 15_000)
	return map[string]attempt{
		"flood of strangers": {reason: "they have a budget of their own", try: func(t *testing.T, w *world) {
			done := w.deed(t, "before-strangers")
			for range 200 {
				w.expect(t, request{method: "POST", path: tenant + "/configmaps" + long, body: "{}"}, http.StatusUnauthorized)
			}
			records := readAudit(t, path)
			records.has(t, done)
			if n := records.bytes(func(e *auditv1.Event) bool { return e.User.Username == "" }); n == 0 || n > auditTotal/20 {
				t.Errorf("strangers have %d bytes of the log, want some of them, and less than a twentieth of %d", n, auditTotal)
			}
		}},
		"flood of a user": {reason: "nobody has more of the log than is left", try: func(t *testing.T, w *world) {
			done := w.deed(t, "before-flood")
			for range 700 {
				w.expect(t, request{as: "stranger", method: "DELETE", path: tenant + "/configmaps/absent" + long}, http.StatusForbidden)
			}
			later := w.deed(t, "after-flood")
			records := readAudit(t, path)
			records.has(t, done)
			records.has(t, later)
			if n := records.bytes(func(e *auditv1.Event) bool { return e.User.Username == "stranger" }); n == 0 || n > auditTotal*6/10 {
				t.Errorf("one user has %d bytes of the log, want some of them, and about half of %d at most", n, auditTotal)
			}
		}},
		"mistakes that are repeated": {reason: "an event has a bound, also with an answer that names each mistake", try: func(t *testing.T, w *world) {
			var data []string
			for i := range 1000 {
				data = append(data, fmt.Sprintf(`"!%d":""`, i))
			}
			body := configMap("many-mistakes", "{"+strings.Join(data, ",")+"}")
			w.expect(t, request{as: "editor", method: "POST", path: tenant + "/configmaps", body: body}, http.StatusUnprocessableEntity)
			n := readAudit(t, path).bytes(func(e *auditv1.Event) bool { return e.User.Username == "editor" && e.ResponseStatus.Code == 422 })
			if n == 0 || n > 8<<10 {
				t.Errorf("a request of %d bytes adds %d to the log, want its event and at most 8 KiB", len(body), n)
			}
		}},
		"reading secrets": {reason: "who read them is in the record, by default", try: func(t *testing.T, w *world) {
			secrets := tenant + "/secrets"
			w.expect(t, request{as: "chief", method: "GET", path: secrets + "/none"}, http.StatusNotFound)
			w.expect(t, request{as: "chief", method: "GET", path: secrets}, http.StatusOK)
			w.expect(t, request{as: "chief", method: "GET", path: secrets + "?watch=true&timeoutSeconds=1"}, http.StatusOK)
			w.expect(t, request{as: "reader", method: "GET", path: crown}, http.StatusForbidden)
			records := readAudit(t, path)
			for _, r := range []string{"chief get secrets 404", "chief list secrets 200", "chief watch secrets 200", "reader get secrets 403"} {
				records.has(t, r)
			}
			if n := records.bytes(func(e *auditv1.Event) bool {
				return e.User.Username == "system:apiserver" && (e.Verb == "get" || e.Verb == "list" || e.Verb == "watch")
			}); n > 0 {
				t.Errorf("the server's own reads have %d bytes of the log, want none", n)
			}
		}},
		"taking everything": {reason: "who took a backup, or tried to, is in the record, by default", try: func(t *testing.T, w *world) {
			w.backup(t)
			w.expect(t, request{as: "chief", method: "GET", path: backup.Path}, http.StatusForbidden)
			w.expect(t, request{as: "mender", method: "POST", path: insight.MaintenancePath + "?do=compact"}, http.StatusOK)
			records := readAudit(t, path)
			for _, want := range []string{"saver get /backup 200", "chief get /backup 403", "mender post /debug/storage?do=compact 200"} {
				if records.bytes(func(e *auditv1.Event) bool {
					return e.ResponseStatus != nil && want == fmt.Sprintf("%s %s %s %d", e.User.Username, e.Verb, e.RequestURI, e.ResponseStatus.Code)
				}) == 0 {
					t.Errorf("the log has no %q", want)
				}
			}
		}},
		"removing lines": {reason: "each line has the hash of the one before", try: func(t *testing.T, w *world) {
			w.deed(t, "before-cut")
			w.deed(t, "to-be-cut")
			w.deed(t, "after-cut")
			content := bytes.Join(readAudit(t, path).lines, nil)
			file := filepath.Join(t.TempDir(), "copy.log")
			verify := func(content []byte) error {
				if err := os.WriteFile(file, content, 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := auditing.Verify([]string{file})
				return err
			}
			if err := verify(content); err != nil {
				t.Errorf("the whole log: %v", err)
			}
			at := bytes.Index(content, []byte(`"name":"to-be-cut"`))
			begin, end := bytes.LastIndexByte(content[:at], '\n')+1, at+bytes.IndexByte(content[at:], '\n')+1
			if err := verify(append(bytes.Clone(content[:begin]), content[end:]...)); err == nil {
				t.Error("a log without one of its lines is taken for whole")
			}
			if err := verify(bytes.Replace(content, []byte(`"name":"to-be-cut"`), []byte(`"name":"something"`), 1)); err == nil {
				t.Error("a log with another line is taken for whole")
			}
		}},
	}
}

// expect sends a request that has to be answered so.
func (w *world) expect(t *testing.T, r request, code int) {
	t.Helper()
	if a := w.send(t, r); a.code != code {
		t.Fatalf("%s %s as %q: %d, want %d: %s", r.method, short(r.path), r.as, a.code, code, short(a.body))
	}
}

// deed does something, and returns how the record tells it.
func (w *world) deed(t *testing.T, name string) string {
	t.Helper()
	w.expect(t, request{as: "chief", method: "DELETE", path: tenant + "/configmaps/" + name}, http.StatusNotFound)
	return "chief delete configmaps " + name
}

// record is what a log has, the oldest event first.
type record struct {
	lines  [][]byte
	events []*auditv1.Event
}

func readAudit(t *testing.T, path string) *record {
	t.Helper()
	files, err := filepath.Glob(strings.TrimSuffix(path, ".log") + "-*.log")
	if err != nil {
		t.Fatal(err)
	}
	r := &record{}
	for _, f := range append(files, path) {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			e := &auditv1.Event{}
			if !bytes.HasSuffix(line, []byte("\n")) {
				break // it is being written
			}
			if err := json.Unmarshal(line, e); err != nil {
				t.Fatalf("%s: %v: %s", f, err, line)
			}
			r.lines, r.events = append(r.lines, line), append(r.events, e)
		}
	}
	return r
}

// bytes are those of some events.
func (r *record) bytes(which func(e *auditv1.Event) bool) int {
	n := 0
	for i, e := range r.events {
		if which(e) {
			n += len(r.lines[i])
		}
	}
	return n
}

// has tells whether an event is there: its user, verb, resource, and its name or code.
func (r *record) has(t *testing.T, want string) {
	t.Helper()
	n := r.bytes(func(e *auditv1.Event) bool {
		if e.ObjectRef == nil || e.ResponseStatus == nil {
			return false
		}
		told := strings.Join([]string{e.User.Username, e.Verb, e.ObjectRef.Resource}, " ")
		return want == told+" "+e.ObjectRef.Name || want == fmt.Sprintf("%s %d", told, e.ResponseStatus.Code)
	})
	if n == 0 {
		t.Errorf("the log no longer has %q", want)
	}
}
