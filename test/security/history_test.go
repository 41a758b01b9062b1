package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// TestHistory: updates take no more memory than objects. It does not run in parallel,
// since it measures the memory of the process.
func TestHistory(t *testing.T) { //nolint:paralleltest // see above
	attack(t, serve(t), historyAttempts())
}

const (
	// updates of updateSize are several times what may be kept of them.
	updates, updateSize = 300, 1 << 20
	// kept is what the process may have more after them: 24 MiB in watch caches, 8 in
	// the storage's own history, the objects, a hundred requests in the log of etcd, and
	// what requests and watches leave.
	kept, keptByEtcd = 100 << 20, 200 << 20
)

func historyAttempts() map[string]attempt {
	small := memory.Store{HistoryBytes: 8 << 20}
	return map[string]attempt{
		"large updates": {reason: "old versions are not kept without end", try: func(t *testing.T, _ *world) {
			t.Helper()
			flood(t, small, kept)
		}},
		"large updates on SQLite": {reason: "old versions are not kept without end", try: func(t *testing.T, _ *world) {
			t.Helper()
			flood(t, sqlite.File{Path: filepath.Join(t.TempDir(), "objects.db"), UnsafeNoSync: true}, kept)
		}},
		"large updates on etcd": {reason: "old versions are not kept without end", try: func(t *testing.T, _ *world) {
			t.Helper()
			flood(t, etcd.Embedded{Dir: t.TempDir(), UnsafeNoSync: true}, keptByEtcd)
		}},
	}
}

// flood updates large objects of a server that it starts, of which a client watches
// all. It says what a watch from before may expect then, and one of another resource.
func flood(t *testing.T, s controlplane.Storage, most uint64) {
	t.Helper()
	w := serveOn(t, s)
	maps, roles := tenant+"/configmaps", rbacv1+"/clusterroles"
	w.must(t, request{method: "GET", path: maps}, http.StatusOK)
	listed := w.must(t, request{method: "GET", path: roles + "?limit=1"}, http.StatusOK)
	role := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"quiet"}}`
	w.must(t, request{method: "POST", path: roles, body: role}, http.StatusCreated)
	large := func(n int) string {
		return configMap(fmt.Sprint("large-", n%4), `{"a":"`+strings.Repeat(string(rune('a'+n%26)), updateSize-1<<10)+`"}`)
	}
	for n := range 4 {
		w.must(t, request{method: "POST", path: maps, body: large(n)}, http.StatusCreated)
	}
	begin := w.must(t, request{method: "GET", path: maps + "?limit=1"}, http.StatusOK)
	before := heapNow()
	for n := range updates {
		w.must(t, request{method: "PUT", path: fmt.Sprint(maps, "/large-", n%4), body: large(n)}, http.StatusOK)
	}
	if after := heapNow(); after > before+most {
		t.Errorf("after %d updates of 1 MiB the process has %d MiB more, want at most %d", updates, (after-before)>>20, most>>20)
	}
	// The last update is in the watch cache when a list from it is answered.
	w.must(t, request{method: "GET", path: maps}, http.StatusOK)
	if got := w.first(t, maps, versionIn(t, begin)); !strings.Contains(got, `"code":410`) {
		t.Errorf("a watch from before the updates: %s, want 410", short(got))
	}
	if got := w.first(t, roles, versionIn(t, listed)); !strings.Contains(got, `"name":"quiet"`) {
		t.Errorf("a watch of another resource from before: %s, want the event", short(got))
	}
	now := w.must(t, request{method: "GET", path: maps + "?limit=1"}, http.StatusOK)
	w.must(t, request{method: "PUT", path: maps + "/large-0", body: configMap("large-0", "{}")}, http.StatusOK)
	if got := w.first(t, maps, versionIn(t, now)); !strings.Contains(got, `"name":"large-0"`) {
		t.Errorf("a watch from a list after the updates: %s, want the next event", short(got))
	}
}

// heapNow is how much of the heap is alive.
func heapNow() uint64 {
	var m runtime.MemStats
	for range 2 { // the first collection frees what has a finalizer, or is in a pool
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// first returns the first event of a watch, or all of it if none comes for a second.
func (w *world) first(tb testing.TB, path, version string) string {
	tb.Helper()
	a := w.must(tb, request{method: "GET", path: path + "?watch=1&timeoutSeconds=1&resourceVersion=" + version}, http.StatusOK)
	event, _, _ := strings.Cut(a.body, "\n")
	return event
}

func versionIn(tb testing.TB, a answer) string {
	tb.Helper()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(a.body), &object); err != nil {
		tb.Fatal(err)
	}
	return object.ResourceVersion
}
