package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// put writes a key, whatever it was before.
func put(t testing.TB, l *log, key, value string) int64 {
	t.Helper()
	return appended(t, l, revision.Change{Key: key, Value: []byte(value), Expect: revision.AnyRevision})
}

func appended(t testing.TB, l *log, changes ...revision.Change) int64 {
	t.Helper()
	r, err := l.Append(context.Background(), changes)
	if err != nil {
		t.Fatal(err)
	}
	if r.Refused >= 0 {
		t.Fatalf("change %d is refused", r.Refused)
	}
	return r.Revision
}

func rowsOf(t *testing.T, l *log) (n int) {
	t.Helper()
	must(t, l.db.QueryRow("SELECT COUNT(*) FROM kine").Scan(&n))
	return n
}

// TestQueriesSortNothing: what is read comes in the order of an index or of the
// rows. To sort it takes memory, or a file, as large as the answer.
func TestQueriesSortNothing(t *testing.T) {
	l := openLog(t, File{Path: filepath.Join(t.TempDir(), "state.db")})
	for name, tc := range map[string]struct {
		query string
		args  []any
		want  string
	}{
		"key":     {getKey, []any{"a", 1}, "INDEX sailplane_name"},
		"list":    {list, []any{"a", "b", 1, -1}, "COVERING INDEX sailplane_name"},
		"count":   {count, []any{"a", "b", 1}, "COVERING INDEX sailplane_name"},
		"changes": {changes, []any{1, 2, "a", "b", 500}, "k USING INTEGER PRIMARY KEY"},
	} {
		rows, err := l.db.Query("EXPLAIN QUERY PLAN "+tc.query, tc.args...)
		must(t, err)
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			must(t, rows.Scan(&id, &parent, &unused, &detail))
			plan = append(plan, detail)
		}
		must(t, rows.Err())
		text := strings.Join(plan, "\n")
		if strings.Contains(text, "TEMP B-TREE") || !strings.Contains(text, tc.want) {
			t.Errorf("%s: want %s and nothing sorted:\n%s", name, tc.want, text)
		}
	}
}

// TestCompactionLeavesNothing: of keys that were changed and deleted, only what is
// there now is left.
func TestCompactionLeavesNothing(t *testing.T) {
	l := openLog(t, File{Path: filepath.Join(t.TempDir(), "state.db")})
	const keys, rounds = 20, 10
	for round := range rounds {
		for i := range keys {
			put(t, l, fmt.Sprintf("/t/%02d", i), fmt.Sprint(round))
		}
	}
	for i := range keys / 2 {
		appended(t, l, revision.Change{Kind: revision.Delete, Key: fmt.Sprintf("/t/%02d", i), Expect: revision.AnyRevision})
	}
	last := put(t, l, "/t/last", "1")
	must(t, l.Compact(t.Context(), last))
	// kine's own row, the other half, and the last one.
	if got, want := rowsOf(t, l), 1+keys/2+1; got != want {
		t.Errorf("%d rows are left, want %d", got, want)
	}
	var sums int
	must(t, l.db.QueryRow("SELECT COUNT(*) FROM sailplane_row").Scan(&sums))
	if want := keys/2 + 1; sums != want {
		t.Errorf("%d checksums are left, want %d", sums, want)
	}
	if l.history != 0 {
		t.Errorf("%d bytes of history are counted, want none", l.history)
	}
}

// TestHistoryBytes: history has a bound, and the file with it.
func TestHistoryBytes(t *testing.T) {
	const limit, size = 1 << 20, 10 << 10
	path := filepath.Join(t.TempDir(), "state.db")
	l := openLog(t, File{Path: path, HistoryBytes: limit})
	value := strings.Repeat("x", size)
	for range 2000 { // 20 MB, of which one value is live
		put(t, l, "/t/a", value)
	}
	// What was compacted on the way is asked for.
	if _, _, err := l.Changes(t.Context(), revision.Span{End: revision.NoEnd}, 1); !errors.Is(err, revision.ErrCompacted) {
		t.Errorf("changes from the first revision on: got %v, want %v", err, revision.ErrCompacted)
	}
	l.keeper.trim(t.Context())
	if l.history > limit {
		t.Errorf("%d bytes of history are kept, want at most %d", l.history, limit)
	}
	used, err := l.Size(t.Context())
	must(t, err)
	if used > 4*limit {
		t.Errorf("%d bytes of the file are in use", used)
	}
}

// TestDamagedValue: a value that changed on the disk is named, and harms no other.
func TestDamagedValue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	f := File{Path: path}
	opened, err := open(t.Context(), f, 0, func(int64, []*revision.Event, int64) {})
	must(t, err)
	for i := range 10 {
		put(t, opened.(*log), fmt.Sprintf("/t/%d", i), "good")
	}
	must(t, opened.Close(t.Context()))
	db := connect(path, 1)
	_, err = db.Exec("UPDATE kine SET value = CAST('evil' AS BLOB) WHERE name = '/t/5'")
	must(t, err)
	must(t, db.Close())

	l := openLog(t, f)
	page, err := l.Range(t.Context(), revision.Query{Span: revision.Span{Key: "/t/", End: "/t0"}})
	must(t, err)
	if len(page.KVs) != 10 {
		t.Fatalf("the list has %d keys, want 10", len(page.KVs))
	}
	for _, kv := range page.KVs {
		damage := revision.DamageOf(kv.Value)
		switch {
		case kv.Key == "/t/5" && (damage == nil || !strings.Contains(damage.Error(), "/t/5")):
			t.Errorf("the damaged key: got %v, want an error that names it", damage)
		case kv.Key != "/t/5" && string(kv.Value) != "good":
			t.Errorf("%s is %q", kv.Key, kv.Value)
		}
	}
	known := map[int64]bool{}
	_, _, err = l.scrub(t.Context(), 0, known)
	must(t, err)
	if len(known) != 1 {
		t.Errorf("the scrub finds %d damaged rows, want 1", len(known))
	}
	put(t, l, "/t/5", "better")
	appended(t, l, revision.Change{Kind: revision.Delete, Key: "/t/5", Expect: revision.AnyRevision})
}

// TestTransaction: several changes are all made or none is, and have revisions that
// follow each other.
func TestTransaction(t *testing.T) {
	l := openLog(t, File{Path: filepath.Join(t.TempDir(), "state.db")})
	one := put(t, l, "/a", "1")
	r, err := l.Append(t.Context(), []revision.Change{
		{Key: "/b", Value: []byte("1"), Expect: 0}, {Key: "/a", Value: []byte("2"), Expect: one + 1},
	})
	must(t, err)
	if r.Refused != 1 || r.Before[1] == nil || r.Revision != one {
		t.Errorf("got %+v, want the second change refused", r)
	}
	got := appended(t, l,
		revision.Change{Kind: revision.Check, Key: "/c", Expect: 0}, revision.Change{Key: "/b", Value: []byte("1")},
		revision.Change{Kind: revision.Delete, Key: "/a", Expect: one})
	if want := one + 2; got != want {
		t.Errorf("got revision %d, want %d", got, want)
	}
	events, through, err := l.Changes(t.Context(), revision.Span{End: revision.NoEnd}, one)
	must(t, err)
	if len(events) != 2 || through != got || events[0].KV.Key != "/b" || !events[1].Delete || events[1].Previous == nil {
		t.Errorf("got %d events up to %d, want /b made and /a deleted", len(events), through)
	}
}

func TestOnlyTheLastDirectoryIsMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "mounted", "state.db")
	err := File{Path: path}.Open().Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "create the directory") {
		t.Errorf("got %v, want that the directory cannot be created", err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(path))); !os.IsNotExist(err) {
		t.Errorf("a directory above the last one was made: %v", err)
	}
}

// TestLockHoldsThroughLinks: one file has one lock, whatever it is called.
func TestLockHoldsThroughLinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	openLog(t, File{Path: path})
	for name, link := range map[string]string{"file": filepath.Join(dir, "link.db"), "directory": filepath.Join(t.TempDir(), "dir")} {
		to, other := path, link
		if name == "directory" {
			to, other = dir, filepath.Join(link, "state.db")
		}
		must(t, os.Symlink(to, link))
		err := File{Path: other}.Open().Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("through a link to the %s: got %v, want that it is in use", name, err)
		}
	}
}

// TestOrderlyStop: a file that was closed in order is one file, and is not checked.
func TestOrderlyStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for round, want := range []bool{true, true, true} {
		opened, err := open(t.Context(), File{Path: path}, 0, func(int64, []*revision.Event, int64) {})
		must(t, err)
		l := opened.(*log)
		if l.writer.clean != want {
			t.Errorf("round %d: clean is %v", round, l.writer.clean)
		}
		put(t, l, "/a", fmt.Sprint(round))
		must(t, l.Close(t.Context()))
		if _, err := os.Stat(path + "-wal"); !os.IsNotExist(err) {
			t.Errorf("round %d: SQLite's log is left: %v", round, err)
		}
	}
}

// kineTables are those of kine v0.16.
var kineTables = []string{
	`CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER,
		create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB)`,
	`CREATE INDEX kine_name_index ON kine (name)`,
	`CREATE INDEX kine_name_id_index ON kine (name,id)`,
	`CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision)`,
	`INSERT INTO kine VALUES (1, 'compact_rev_key', 1, 0, 0, 3, 0, '', NULL)`,
	`INSERT INTO kine VALUES (4, '/a', 1, 0, 0, 0, 0, CAST('1' AS BLOB), NULL)`,
	`INSERT INTO kine VALUES (5, '/a', 0, 0, 4, 4, 0, CAST('2' AS BLOB), CAST('1' AS BLOB))`,
	`INSERT INTO kine VALUES (6, '/b', 1, 0, 0, 0, 3600, CAST('leased' AS BLOB), NULL)`,
	`INSERT INTO kine VALUES (7, 'gap-7', 0, 1, 0, 0, 0, NULL, NULL)`,
	`INSERT INTO kine VALUES (8, '/c', 1, 0, 0, 0, 0, CAST('3' AS BLOB), NULL)`,
	`INSERT INTO kine VALUES (9, '/c', 0, 1, 8, 8, 0, CAST('3' AS BLOB), CAST('3' AS BLOB))`,
	`INSERT INTO kine VALUES (10, 'compact_rev_key_apiserver', 1, 0, 0, 0, 0, CAST('3|9' AS BLOB), NULL)`,
}

// TestFileOfKine: a file that kine wrote is brought up to date, also after an
// upgrade that was interrupted, and has the same keys and history.
func TestFileOfKine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := connect(path, 1, "PRAGMA journal_mode = WAL")
	for _, statement := range kineTables {
		_, err := db.Exec(statement)
		must(t, err)
	}
	must(t, db.Close())
	must(t, os.WriteFile(path+newSuffix, []byte("half a copy"), 0o600))
	l := openLog(t, File{Path: path})
	current, compacted, err := l.Current(t.Context())
	must(t, err)
	if current != 10 || compacted != 3 {
		t.Errorf("it is at revision %d and compacted at %d, want 10 and 3", current, compacted)
	}
	page, err := l.Range(t.Context(), revision.Query{Span: revision.Span{End: revision.NoEnd}})
	must(t, err)
	var got []string
	for _, kv := range page.KVs {
		got = append(got, fmt.Sprintf("%s=%s made at %d, written at %d", kv.Key, kv.Value, kv.Create, kv.Mod))
	}
	want := []string{
		"/a=2 made at 4, written at 5", "/b=leased made at 6, written at 6",
		"compact_rev_key_apiserver=3|9 made at 10, written at 10",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	events, through, err := l.Changes(t.Context(), revision.Span{End: revision.NoEnd}, 3)
	must(t, err)
	if len(events) != 6 || through != 10 || string(events[1].Previous.Value) != "1" || !events[4].Delete {
		t.Errorf("got %d events up to %d, want 6 up to 10", len(events), through)
	}
	if keys, err := l.Expiring(t.Context()); err != nil || len(keys) != 1 || keys[0].Key != "/b" {
		t.Errorf("got %v, %v, want that /b ends", keys, err)
	}
	if next := put(t, l, "/d", "4"); next != 11 {
		t.Errorf("the next revision is %d, want 11", next)
	}
}

// TestAnotherProgramsDatabase: the tables of another program are left alone.
func TestAnotherProgramsDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := connect(path, 1)
	_, err := db.Exec("CREATE TABLE customers (name TEXT)")
	must(t, err)
	must(t, db.Close())
	if err := (File{Path: path}).Open().Start(t.Context()); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// TestRecentIsBounded: what is remembered of a key is its newest value, not what it
// was before.
func TestRecentIsBounded(t *testing.T) {
	l := openLog(t, File{Path: filepath.Join(t.TempDir(), "state.db"), UnsafeNoSync: true})
	first := make(chan struct{})
	func() {
		value := make([]byte, 1<<20)
		runtime.AddCleanup(&value[0], func(done chan struct{}) { close(done) }, first)
		appended(t, l, revision.Change{Key: "/a", Value: value, Expect: revision.AnyRevision})
	}()
	for end := time.After(2 * time.Minute); ; {
		put(t, l, "/a", "1")
		runtime.GC()
		select {
		case <-first:
			return
		case <-end:
			t.Fatal("the first value of a key is kept for ever")
		default:
		}
	}
}

// TestSweepOfFewRows: a file whose revisions are high has few rows, and to compact it
// takes as long as it has rows.
func TestSweepOfFewRows(t *testing.T) {
	l := openLog(t, File{Path: filepath.Join(t.TempDir(), "state.db")})
	first := put(t, l, "/a", "1")
	next, err := l.keeper.stepEnd(t.Context(), first, first+1_000_000)
	must(t, err)
	if want := first + 1_000_000; next != want {
		t.Errorf("the step ends at %d, want %d", next, want)
	}
	for range 2 * firstStep {
		put(t, l, "/a", "1")
	}
	l.keeper.step = firstStep
	if next, err = l.keeper.stepEnd(t.Context(), first, first+1_000_000); err != nil || next != first+firstStep {
		t.Errorf("the step ends at %d, %v, want %d", next, err, first+firstStep)
	}
}
