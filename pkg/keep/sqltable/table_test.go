package sqltable_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "modernc.org/sqlite" // the driver

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
	"github.com/sailplane-dev/sailplane/pkg/keep/sqltable"
)

// open opens a database that ends with the test.
func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type apples = sqltable.Table[fruit.Apple]

func columns() []sqltable.Column {
	return []sqltable.Column{
		{Name: "variety", Path: "spec.variety"},
		{Name: "replicas", Path: "spec.replicas"},
		{Name: "grafts", Path: "spec.grafts"},
		{Name: "ripe", Path: "status.ripe"},
		{Name: "note", Path: "metadata.annotations.note"},
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, columns := range map[string][]sqltable.Column{"Columns": columns(), "Default": nil, "None": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keeptest.Run(t, keeptest.Options[fruit.Apple]{
				Fill: func(a *fruit.Apple, n int) {
					a.Spec = fruit.AppleSpec{Variety: "' and \" and \x01", Replicas: new(int32(n)), Grafts: []fruit.Graft{{Name: "a"}}} //nolint:gosec // it is small
					a.Status.Ripe = n%2 == 0
				},
				Break: func(t *testing.T, k keep.Keeper[fruit.Apple], key keep.Key) {
					t.Helper()
					exec(t, k.(*apples).DB, `INSERT INTO apples (namespace, name, object) VALUES (?, ?, '{"spec":7}')`, key.Namespace, key.Name)
				},
				Reopen: func(_ *testing.T, k keep.Keeper[fruit.Apple]) keep.Keeper[fruit.Apple] {
					return &apples{DB: k.(*apples).DB, Name: "apples", Columns: columns}
				},
			}, func(t *testing.T) keep.Keeper[fruit.Apple] {
				return &apples{DB: open(t), Name: "apples", Columns: columns}
			})
		})
	}
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// query returns the cells of a table.
func query(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		cells, into := make([]sql.NullString, len(names)), []any{}
		for i := range cells {
			into = append(into, &cells[i])
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var row []string
		for _, cell := range cells {
			if !cell.Valid {
				cell.String = "NULL"
			}
			row = append(row, cell.String)
		}
		all = append(all, strings.Join(row, "|"))
	}
	return strings.Join(all, "\n")
}

// follower is a reader that follows the changes.
type follower struct {
	t       *testing.T
	keeper  keep.Keeper[fruit.Apple]
	version int64
}

func follow(t *testing.T, k keep.Keeper[fruit.Apple]) *follower {
	t.Helper()
	page, err := k.List(t.Context(), keep.Range{})
	if err != nil {
		t.Fatal(err)
	}
	return &follower{t, k, page.Version}
}

// next returns what changed, as "KEY VARIETY" or "KEY gone".
func (f *follower) next() string {
	f.t.Helper()
	var all []string
	b, err := f.keeper.Changes(f.t.Context(), f.version)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range b.Changes {
		what := "gone"
		if c.Object != nil {
			what = c.Object.Spec.Variety
		}
		all = append(all, c.Key.String()+" "+what)
	}
	f.version = b.Version
	return strings.Join(all, ", ")
}

// TestOthersRead: a field with a column is in it, and nowhere else.
func TestOthersRead(t *testing.T) {
	t.Parallel()
	db := open(t)
	table := &apples{DB: db, Name: "apples", Columns: columns()}
	a := &fruit.Apple{
		TypeMeta:   metav1.TypeMeta{Kind: "Apple"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u", Annotations: map[string]string{"note": "sour", "x": "y"}},
		Spec:       fruit.AppleSpec{Variety: "cox", Replicas: new(int32(3)), Grafts: []fruit.Graft{{Name: "g"}}},
		Status:     fruit.AppleStatus{Ripe: true},
	}
	if _, err := table.Put(t.Context(), a, 0); err != nil {
		t.Fatal(err)
	}
	got := query(t, db, `SELECT namespace, name, uid, variety, replicas, grafts, ripe, note, object FROM apples`)
	want := `default|a|u|cox|3|[{"name":"g"}]|1|sour|{"kind":"Apple","metadata":{"annotations":{"x":"y"}},"spec":{},"status":{}}`
	if got = strings.Replace(got, "|true|", "|1|", 1); got != want {
		t.Errorf("the row is\n%s, want\n%s", got, want)
	}
}

// TestOthersWrite: what other programs write with SQL are objects, and their writes are changes.
func TestOthersWrite(t *testing.T) {
	t.Parallel()
	db := open(t)
	table := &apples{DB: db, Name: "apples", Columns: columns()}
	f := follow(t, table)
	for _, c := range []struct{ statement, changes string }{
		{`INSERT INTO apples (namespace, name, variety) VALUES ('ns', 'a', 'cox'), ('ns', 'b', 'gala')`, "ns/a cox, ns/b gala"},
		{`UPDATE apples SET variety = 'elstar' WHERE name = 'b'`, "ns/b elstar"},
		{`UPDATE apples SET variety = 'jonagold'`, "ns/a jonagold, ns/b jonagold"},
		{`UPDATE apples SET variety = 'cox', resource_version = 5 WHERE name = 'a'`, "ns/a cox"},
		{`INSERT INTO apples (namespace, name) VALUES ('ns', 'a') ON CONFLICT DO NOTHING`, ""},
		{`INSERT INTO apples (namespace, name) VALUES ('ns', 'a') ON CONFLICT (namespace, name) DO UPDATE SET variety = 'topaz'`, "ns/a topaz"},
		{`DELETE FROM apples WHERE name = 'b'`, "ns/b gone"},
		{`UPDATE apples SET variety = NULL`, "ns/a "},
	} {
		exec(t, db, c.statement)
		if got := f.next(); got != c.changes {
			t.Errorf("%s: changes %q, want %q", c.statement, got, c.changes)
		}
	}
	exec(t, db, `UPDATE apples SET name = 'z'`)
	if got := f.next(); got != "ns/z , ns/a gone" && got != "ns/a gone, ns/z " {
		t.Errorf("a row with another name: changes %q", got)
	}
	item, err := table.Get(t.Context(), keep.Key{Namespace: "ns", Name: "z"})
	if err != nil || item.Object.UID == "" || item.Object.CreationTimestamp.IsZero() {
		t.Fatalf("what others inserted has the UID %q and the time %v: %v", item.Object.UID, item.Object.CreationTimestamp, err)
	}
	exec(t, db, `UPDATE apples SET variety = 'topaz'`)
	item.Object.Spec.Variety = "mine"
	if _, err := table.Put(t.Context(), item.Object, item.Version); err == nil {
		t.Error("a put over what others wrote meanwhile was acknowledged")
	}
}

// TestAdopt: the rows of a table that was there become objects.
func TestAdopt(t *testing.T) {
	t.Parallel()
	db := open(t)
	exec(t, db, `CREATE TABLE apples (name TEXT PRIMARY KEY, variety TEXT, weight INTEGER)`)
	exec(t, db, `INSERT INTO apples VALUES ('a', 'cox', 3), ('b', 'gala', 4)`)
	table := &apples{DB: db, Name: "apples", Columns: columns()[:2]}
	page, err := table.List(t.Context(), keep.Range{})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("%d objects: %v", len(page.Items), err)
	}
	for _, item := range page.Items {
		if o := item.Object; o.UID == "" || o.Spec.Variety == "" || item.Version <= 0 || item.Version > page.Version {
			t.Errorf("%s has the UID %q, variety %q and version %d of %d", o.Name, o.UID, o.Spec.Variety, item.Version, page.Version)
		}
	}
	a := page.Items[0]
	a.Object.Spec.Variety = "elstar"
	if _, err := table.Put(t.Context(), a.Object, a.Version); err != nil {
		t.Fatal(err)
	}
	if got := query(t, db, `SELECT name, variety, weight FROM apples ORDER BY name`); got != "a|elstar|3\nb|gala|4" {
		t.Errorf("the table has\n%s", got)
	}
}

// TestAddColumn: a field gets a column later. Objects from before keep it.
func TestAddColumn(t *testing.T) {
	t.Parallel()
	db := open(t)
	put := func(table *apples, name string) {
		t.Helper()
		o := &fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: fruit.AppleSpec{Variety: "cox"}}
		if _, err := table.Put(t.Context(), o, 0); err != nil {
			t.Fatal(err)
		}
	}
	put(&apples{DB: db, Name: "apples", Columns: []sqltable.Column{}}, "a")
	later := &apples{DB: db, Name: "apples", Columns: columns()}
	put(later, "b")
	for _, name := range []string{"a", "b"} {
		item, err := later.Get(t.Context(), keep.Key{Namespace: "ns", Name: name})
		if err != nil || item.Object.Spec.Variety != "cox" {
			t.Errorf("%s has the variety %q: %v", name, item.Object.Spec.Variety, err)
		}
	}
	if got := query(t, db, `SELECT name, variety FROM apples ORDER BY name`); got != "a|NULL\nb|cox" {
		t.Errorf("the table has\n%s", got)
	}
}

// TestHistory: the changes that are known are bounded, and who comes from before them is told.
func TestHistory(t *testing.T) {
	t.Parallel()
	db := open(t)
	table := &apples{DB: db, Name: "apples", History: 10}
	f := follow(t, table)
	for i := range 30 {
		exec(t, db, `INSERT INTO apples (namespace, name) VALUES ('ns', ?)`, fmt.Sprint(i))
	}
	if got := query(t, db, `SELECT count(*) FROM apples_changes`); got != "10" {
		t.Errorf("%s changes are kept, want 10", got)
	}
	if _, err := table.Changes(t.Context(), f.version); !strings.Contains(fmt.Sprint(err), keep.ErrExpired.Error()) {
		t.Errorf("changes from before those that are kept: %v", err)
	}
	newest := follow(t, table).version
	if b, err := table.Changes(t.Context(), newest-10); err != nil || len(b.Changes) != 10 {
		t.Errorf("%d changes of the last 10: %v", len(b.Changes), err)
	}
	// A server with another setting takes over.
	longer := &apples{DB: db, Name: "apples", History: 20}
	if _, err := longer.Changes(t.Context(), newest-11); err == nil {
		t.Error("what was forgotten is not known again when more shall be kept")
	}
}

// TestBadRow: a row that is no object is named, and left out.
func TestBadRow(t *testing.T) {
	t.Parallel()
	db := open(t)
	table := &apples{DB: db, Name: "apples", Columns: columns()}
	follow(t, table)
	for _, replicas := range []string{`'many'`, `3000000000`, `1.5`, `'0x10'`} {
		exec(t, db, `INSERT INTO apples (namespace, name, replicas) VALUES ('ns', 'bad', `+replicas+`)`)
		page, err := table.List(t.Context(), keep.Range{})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("%d objects: %v", len(page.Items), err)
		}
		if err := page.Items[0].Broken; err == nil || !strings.Contains(err.Error(), "ns/bad") || !strings.Contains(err.Error(), "replicas") {
			t.Errorf("%s: the error names neither the row nor the column: %v", replicas, err)
		}
		exec(t, db, `DELETE FROM apples`)
	}
}

// thing has a field of each kind.
type thing struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		AssetTag string            `json:"assetTag,omitempty"`
		Size     resource.Quantity `json:"size"`
		Seen     *metav1.Time      `json:"seen,omitempty"`
		Load     float64           `json:"load,omitempty"`
		On       *bool             `json:"on,omitempty"`
		Order    int               `json:"order,omitempty"`
		Name     string            `json:"name,omitempty"`
		Tags     []string          `json:"tags,omitempty"`
	} `json:"spec"`
}

// TestDefaultColumns: without a word, spec has columns for what is one value.
func TestDefaultColumns(t *testing.T) {
	t.Parallel()
	db := open(t)
	table := &sqltable.Table[thing]{DB: db, Name: "things"}
	a := &thing{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	a.Spec.AssetTag, a.Spec.Size, a.Spec.Load, a.Spec.On, a.Spec.Order = "007", resource.MustParse("10Gi"), 0.5, new(false), 3
	a.Spec.Seen = new(metav1.Unix(1700000000, 0))
	a.Spec.Name, a.Spec.Tags = "in spec", []string{"t"}
	if _, err := table.Put(t.Context(), a, 0); err != nil {
		t.Fatal(err)
	}
	got := query(t, db, `SELECT asset_tag, size, seen, load, "on", "order", object FROM things`)
	want := `007|10Gi|2023-11-14T22:13:20Z|0.5|0|3|{"metadata":{},"spec":{"name":"in spec","tags":["t"]}}`
	if got = strings.Replace(got, "|false|", "|0|", 1); got != want {
		t.Errorf("the row is\n%s, want\n%s", got, want)
	}
	item, err := table.Get(t.Context(), keep.Key{Name: "a"})
	if o := item.Object; err != nil || o.Spec.Size.Cmp(a.Spec.Size) != 0 || !o.Spec.Seen.Equal(a.Spec.Seen) || o.Spec.On == nil || *o.Spec.On || o.Spec.Name != "in spec" {
		t.Errorf("it is read as %+v: %v", o, err)
	}
}

// nameless has a name in Go that it has not in JSON.
type nameless struct {
	metav1.ObjectMeta `json:"-"`
}

func TestErrors(t *testing.T) {
	t.Parallel()
	db := open(t)
	for name, err := range map[string]error{
		"no object": listErr(&sqltable.Table[int]{DB: db, Name: "ints"}),
		"no name in JSON": func() error {
			_, err := (&sqltable.Table[nameless]{DB: db, Name: "names"}).Put(t.Context(), &nameless{metav1.ObjectMeta{Name: "a"}}, 0)
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), "metadata") && !strings.Contains(err.Error(), "ObjectMeta") {
			t.Errorf("%s: %v", name, err)
		}
	}
	exec(t, db, `CREATE TABLE others (id INTEGER)`)
	for name, c := range map[string]struct {
		table *apples
		says  string
	}{
		"no database":    {&apples{Name: "apples"}, "DB"},
		"a name":         {&apples{DB: db, Name: `apples"; DROP TABLE x`}, "letters"},
		"no such field":  {&apples{DB: db, Name: "apples", Columns: []sqltable.Column{{Name: "x", Path: "spec.x"}}}, `"x"`},
		"a column twice": {&apples{DB: db, Name: "apples", Columns: append(columns(), columns()[0])}, `"variety"`},
		"a field twice": {
			&apples{DB: db, Name: "apples", Columns: append(columns(), sqltable.Column{Name: "all", Path: "spec"})}, `"all"`,
		},
		"a reserved column": {&apples{DB: db, Name: "apples", Columns: []sqltable.Column{{Name: "object", Path: "spec.variety"}}}, `"object"`},
		"no such dialect":   {&apples{DB: db, Name: "apples", Dialect: "db2"}, "db2"},
		"no name":           {&apples{DB: db, Name: "others"}, `"name"`},
	} {
		if _, err := c.table.List(context.Background(), keep.Range{}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %s", name, err, c.says)
		}
	}
}

func listErr[T any](t *sqltable.Table[T]) error {
	_, err := t.List(context.Background(), keep.Range{})
	return err
}
