package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/insight"
)

// fullReport has something in every section.
func fullReport() *insight.Report {
	n := func(n int64) *int64 { return &n }
	r := &insight.Report{
		Server: insight.Server{
			Name: "sailplane", Version: "v0.9.0", Kubernetes: "v1.37.2", Go: "go1.26", UptimeSeconds: 182,
			Failed:      []insight.Check{{Name: "storage-etcd-answer", Reason: "etcd: context deadline exceeded"}},
			MemoryBytes: 12897485, LiveBytes: 1 << 30, Goroutines: 400,
		},
		Planes:  []insight.Plane{{Ready: true, Counted: true, Objects: 38, Bytes: 36483}, {Name: "blue"}},
		Served:  insight.Served{Groups: 11, Resources: 33},
		Storage: insight.Storage{Engine: "etcd", FileBytes: n(84 << 10), HistoryBytes: n(1023), LagRevisions: n(0)},
		Servers: []insight.Peer{
			{ID: "a_1", Address: "192.0.2.1:6443", Self: true, Renewed: time.Date(2026, 3, 1, 12, 0, 1, 0, time.Local), LagRevisions: n(0), Work: []string{"bootstrap", "quota"}},
			{ID: "b_2", Renewed: time.Date(2026, 3, 1, 12, 0, 2, 0, time.Local)},
		},
		Caches: []insight.Cache{{Resource: "configmaps", Caches: 2, Objects: 20}},
		Total: insight.Users{
			Seconds: 182,
			Users:   []insight.User{{User: "ann", Requests: 1200, Seconds: 3.456, Errors: 7, Watches: 2}, {Plane: "blue", User: "bob\x1b[2J\tx", Requests: 3}},
			Others:  insight.User{Requests: 9000, Seconds: 81.5, Errors: 1, Watches: 4},
		},
		Recent:      insight.Users{Seconds: 119},
		SlowSeconds: 1,
		Slow: []insight.SlowRequest{{
			When: time.Date(2026, 3, 1, 12, 0, 5, 0, time.Local), User: "ann", Verb: "list", Path: "/api/v1/\r\nconfigmaps", Code: 200, Seconds: 1.25,
		}},
		Levels: []insight.Level{{Name: "exempt", Executing: 2, Waiting: 0, Rejected: 5}},
	}
	for i := range mostRows + 2 {
		r.Resources = append(r.Resources, insight.Resource{Resource: fmt.Sprintf("kind%02d.example.com", i), Objects: 20 - i, Bytes: int64(20-i) << 10})
	}
	return r
}

const fullText = `SERVER
  name         sailplane
  version      v0.9.0, Kubernetes v1.37.2, go1.26
  uptime       3m2s
  ready        no
  failed       storage-etcd-answer: etcd: context deadline exceeded
  memory       12.3 MiB, 1.0 GiB of it live at the last collection
  goroutines   400
  serves       33 resources in 11 groups

PLANES
  NAME     STATE      OBJECTS   SIZE
  (root)   ready      38        35.6 KiB
  blue     starting   unknown   unknown

RESOURCES
  RESOURCE             OBJECTS   SIZE
  kind00.example.com   20        20.0 KiB
  kind01.example.com   19        19.0 KiB
  kind02.example.com   18        18.0 KiB
  kind03.example.com   17        17.0 KiB
  kind04.example.com   16        16.0 KiB
  kind05.example.com   15        15.0 KiB
  kind06.example.com   14        14.0 KiB
  kind07.example.com   13        13.0 KiB
  kind08.example.com   12        12.0 KiB
  kind09.example.com   11        11.0 KiB
  kind10.example.com   10        10.0 KiB
  kind11.example.com   9         9.0 KiB
  kind12.example.com   8         8.0 KiB
  kind13.example.com   7         7.0 KiB
  kind14.example.com   6         6.0 KiB
  ... 2 more

STORAGE
  kind                  etcd
  size                  84.0 KiB
  history               1023 B
  compacted or opened   unknown
  last backup           none that is known
  revision              unknown: the storage does not answer
  watch lag             0 revisions

SERVERS
  ADDRESS                     LAST SEEN             WATCH LAG   WORK               ID
  192.0.2.1:6443 (this one)   2026-03-01 12:00:01   0           bootstrap, quota   a_1
  none                        2026-03-01 12:00:02   unknown     none               b_2

WATCH CACHES
  RESOURCE     CACHES   OBJECTS
  configmaps   2        20

USERS SINCE THE START
  USER                         REQUESTS   SECONDS   ERRORS   WATCHES
  ann                          1200       3.46      7        2
  bob\x1b[2J\tx (plane blue)   3          0.00      0        0
  (others)                     9000       81.50     1        4

USERS IN THE LAST 119s
  USER   REQUESTS   SECONDS   ERRORS   WATCHES
  none

SLOW REQUESTS, OF 1s OR MORE
  WHEN                  USER   VERB   PATH                     CODE   SECONDS
  2026-03-01 12:00:05   ann    list   /api/v1/\r\nconfigmaps   200    1.25

FLOW CONTROL
  LEVEL    EXECUTING   WAITING   REJECTED
  exempt   2           0         5
`

// TestStatusText: every section of a report, without characters that would move the
// terminal's cursor.
func TestStatusText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := writeStatus(&out, fullReport()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullText, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if strings.ContainsAny(out.String(), "\x1b\t\r") {
		t.Errorf("the text has control characters: %q", out.String())
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 12897485: "12.3 MiB", 5 << 30: "5.0 GiB", 3 << 40: "3.0 TiB", 2 << 50: "2048.0 TiB",
	} {
		if got := size(bytes); got != want {
			t.Errorf("%d bytes are %q: want %q", bytes, got, want)
		}
	}
}

// TestStatusErrors: an error says what to do.
func TestStatusErrors(t *testing.T) {
	t.Parallel()
	answers := func(code int) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		return s
	}
	gone := answers(http.StatusOK)
	gone.Close()
	for name, tc := range map[string]struct {
		kubeconfig string
		misuse     bool
		want       string
	}{
		"no file":       {filepath.Join(t.TempDir(), "none"), true, "name the server's --data-dir, or a --kubeconfig"},
		"no directory":  {"", true, "--data-dir is empty: name the server's --kubeconfig"},
		"no kubeconfig": {written(t, "not YAML: ["), true, "yaml"},
		"no server":     {kubeconfigOf(t, gone.URL), false, "is it running"},
		"unknown user":  {kubeconfigOf(t, answers(http.StatusUnauthorized).URL), false, "does not know the user of"},
		"forbidden":     {kubeconfigOf(t, answers(http.StatusForbidden).URL), false, "nonResourceURLs: [/debug/status] and verbs: [get]"},
		"no part":       {kubeconfigOf(t, answers(http.StatusNotFound).URL), false, "made without insight.Status{}"},
		"broken":        {kubeconfigOf(t, answers(http.StatusInternalServerError).URL), false, "the server at http://"},
	} {
		_, err := askStatus(t.Context(), tc.kubeconfig)
		var wrong misuse
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, &wrong) != tc.misuse {
			t.Errorf("%s: got %v, want misuse %v and %q", name, err, tc.misuse, tc.want)
		}
	}
}

// TestStatusJSON: -o json prints the answer as it is, also what this program does not
// know.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != insight.Path || r.URL.Query().Has("timeout") { // an answer may take as long as it likes
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"server":{"name":"later"},"new":1}`)
	}))
	defer s.Close()
	run := func(args ...string) string {
		var out bytes.Buffer
		c := command()
		c.SetOut(&out)
		c.SetArgs(append([]string{"status", "--kubeconfig", kubeconfigOf(t, s.URL)}, args...))
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got, want := run("-o", "json"), `{"server":{"name":"later"},"new":1}`; got != want || !json.Valid([]byte(got)) {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := run(); !strings.Contains(got, "  name         later\n") {
		t.Errorf("got %s, want the name of the server", got)
	}
}

// written is a file with a content.
func written(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// kubeconfigOf is a kubeconfig of the server at a URL.
func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	return written(t, `apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: "`+url+`"}}]
users: [{name: it, user: {token: secret}}]
`)
}
