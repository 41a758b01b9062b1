//go:build unix

package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
	"github.com/sailplane-dev/sailplane/pkg/keep/sqltable"
	"github.com/sailplane-dev/sailplane/test/database"
)

type apples = sqltable.Table[fruit.Apple]

// databases returns what makes empty databases on a PostgreSQL of the test's own.
func databases(t *testing.T) func(t *testing.T) *sql.DB {
	t.Helper()
	server := database.Postgres(t)
	connect := func(t *testing.T, name string) *sql.DB {
		t.Helper()
		db, err := sql.Open("pgx", server.URL(name))
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(20)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	root := connect(t, "postgres")
	for end := time.Now().Add(time.Minute); ; {
		err := root.PingContext(t.Context())
		if err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	var n atomic.Int64
	return func(t *testing.T) *sql.DB {
		t.Helper()
		name := fmt.Sprintf("keep_%d", n.Add(1))
		execute(t, root, "CREATE DATABASE "+name)
		return connect(t, name)
	}
}

func execute(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func appleColumns() []sqltable.Column {
	return []sqltable.Column{
		{Name: "variety", Path: "spec.variety"},
		{Name: "replicas", Path: "spec.replicas"},
		{Name: "grafts", Path: "spec.grafts"},
		{Name: "ripe", Path: "status.ripe"},
	}
}

// TestTables holds tables on PostgreSQL to the contract of keepers.
func TestTables(t *testing.T) {
	made := databases(t)
	for name, columns := range map[string][]sqltable.Column{"Columns": appleColumns(), "None": {}} {
		t.Run(name, func(t *testing.T) {
			keeptest.Run(t, keeptest.Options[fruit.Apple]{
				Fill: func(a *fruit.Apple, n int) {
					a.Spec = fruit.AppleSpec{Variety: "' and \" and \x01", Replicas: new(int32(n)), Grafts: []fruit.Graft{{Name: "a"}}}
					a.Status.Ripe = n%2 == 0
				},
				Reopen: func(_ *testing.T, k keep.Keeper[fruit.Apple]) keep.Keeper[fruit.Apple] {
					return &apples{DB: k.(*apples).DB, Name: "apples", Columns: columns}
				},
			}, func(t *testing.T) keep.Keeper[fruit.Apple] {
				return &apples{DB: made(t), Name: "apples", Columns: columns}
			})
		})
	}
	t.Run("OthersWrite", func(t *testing.T) { othersWrite(t, made(t)) })
	t.Run("Adopt", func(t *testing.T) { adopt(t, made(t)) })
	t.Run("Start", func(t *testing.T) { startTogether(t, made(t)) })
	t.Run("CommitOrder", func(t *testing.T) { tablesCommitOrder(t, made(t)) })
}

// othersWrite: what other programs write with SQL are changes.
func othersWrite(t *testing.T, db *sql.DB) {
	t.Helper()
	table := &apples{DB: db, Name: "apples", Columns: appleColumns()}
	page, err := table.List(t.Context(), keep.Range{})
	if err != nil {
		t.Fatal(err)
	}
	version := page.Version
	for _, c := range []struct{ statement, changes string }{
		{`INSERT INTO apples (namespace, name, variety) VALUES ('ns', 'a', 'cox'), ('ns', 'b', 'gala')`, " ns/a=cox ns/b=gala"},
		{`UPDATE apples SET variety = 'jonagold' WHERE name = 'b'`, " ns/b=jonagold"},
		{`UPDATE apples SET variety = 'topaz', resource_version = 5 WHERE name = 'a'`, " ns/a=topaz"},
		{`INSERT INTO apples (namespace, name) VALUES ('ns', 'a') ON CONFLICT DO NOTHING`, ""},
		{`INSERT INTO apples (namespace, name) VALUES ('ns', 'a') ON CONFLICT (namespace, name) DO UPDATE SET variety = 'elstar'`, " ns/a=elstar"},
		{`UPDATE apples SET name = 'z' WHERE name = 'a'`, " ns/a gone ns/z=elstar"},
		{`DELETE FROM apples WHERE name = 'b'`, " ns/b gone"},
	} {
		execute(t, db, c.statement)
		b, err := table.Changes(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		version = b.Version
		got := ""
		for _, change := range b.Changes {
			if got += " " + change.Key.String(); change.Object == nil {
				got += " gone"
			} else {
				got += "=" + change.Object.Spec.Variety
			}
		}
		if got != c.changes {
			t.Errorf("%s: changes %q, want %q", c.statement, got, c.changes)
		}
	}
	item, err := table.Get(t.Context(), keep.Key{Namespace: "ns", Name: "z"})
	if err != nil || item.Object.UID == "" || item.Object.CreationTimestamp.IsZero() {
		t.Errorf("what others inserted has the UID %q and the time %v: %v", item.Object.UID, item.Object.CreationTimestamp, err)
	}
	execute(t, db, `TRUNCATE apples`)
	if _, err := table.Changes(t.Context(), version); !errors.Is(err, keep.ErrExpired) {
		t.Errorf("changes since before TRUNCATE: %v, want %v", err, keep.ErrExpired)
	}
}

// adopt: the rows of a table that was there become objects.
func adopt(t *testing.T, db *sql.DB) {
	t.Helper()
	execute(t, db, `CREATE TABLE apples (name VARCHAR(50) PRIMARY KEY, variety VARCHAR(20), replicas INT, born TIMESTAMPTZ NOT NULL DEFAULT now())`)
	execute(t, db, `INSERT INTO apples VALUES ('a', 'cox', 3), ('b', 'gala', NULL)`)
	table := &apples{DB: db, Name: "apples", Columns: appleColumns()}
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
	if a.Object.Spec.Replicas == nil || *a.Object.Spec.Replicas != 3 {
		t.Errorf("a has %v replicas, want 3", a.Object.Spec.Replicas)
	}
	a.Object.Spec.Variety = "elstar"
	if _, err := table.Put(t.Context(), a.Object, a.Version); err != nil {
		t.Fatal(err)
	}
}

// startTogether: servers that start at once on an empty database share a table.
func startTogether(t *testing.T, db *sql.DB) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			table := &apples{DB: db, Name: "apples"}
			o := &fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i)}}
			if _, err := table.Put(t.Context(), o, 0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// tablesCommitOrder: a reader that follows the changes misses none, though commits come late and in any
// order, some by other programs, and whole tables are written at once.
func tablesCommitOrder(t *testing.T, db *sql.DB) {
	t.Helper()
	one, two := &apples{DB: db, Name: "apples", Columns: appleColumns()}, &apples{DB: db, Name: "apples", Columns: appleColumns()}
	page, err := one.List(t.Context(), keep.Range{})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF random() < 0.3 THEN PERFORM pg_sleep(random() * 0.02); END IF; RETURN NULL; END $$`)
	execute(t, db, `CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON apples DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()`)
	seen, version := map[keep.Key]int64{}, page.Version
	follow := func() {
		for more := true; more; {
			b, err := two.Changes(t.Context(), version)
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range b.Changes {
				if c.Object == nil {
					delete(seen, c.Key)
				} else {
					seen[c.Key] = c.Version
				}
			}
			version, more = b.Version, b.More
		}
	}
	writing, done := context.WithCancel(t.Context())
	go func() {
		defer done()
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() { writeSome(t, db, []*apples{one, two}[i%2], i) })
		}
		all.Wait()
	}()
	for writing.Err() == nil {
		follow()
	}
	follow()
	page, err = one.List(t.Context(), keep.Range{})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range page.Items {
		key := keep.Key{Namespace: item.Object.Namespace, Name: item.Object.Name}
		if seen[key] != item.Version {
			t.Errorf("%s has version %d, the changes say %d", key, item.Version, seen[key])
		}
	}
	if len(seen) != len(page.Items) {
		t.Errorf("there are %d objects, the changes say %d", len(page.Items), len(seen))
	}
}

// writeSome writes objects through a table, and now and then past it.
func writeSome(t *testing.T, db *sql.DB, table *apples, writer int) {
	t.Helper()
	for n := range 40 {
		key := keep.Key{Namespace: "ns", Name: fmt.Sprintf("w%d", (writer+n)%5)}
		now, err := table.Get(t.Context(), key)
		switch {
		case n%8 == 7:
			_, err = db.ExecContext(t.Context(), `UPDATE apples SET variety = $1`, fmt.Sprint(n))
		case err == nil && n%4 == 3:
			_, err = table.Remove(t.Context(), key, now.Version)
		default:
			_, err = table.Put(t.Context(), &fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, now.Version)
		}
		var state interface{ SQLState() string }
		isDeadlock := errors.As(err, &state) && state.SQLState() == "40P01" // whole tables are written in any order
		if err != nil && !errors.Is(err, keep.ErrConflict) && !errors.Is(err, keep.ErrNotFound) && !isDeadlock {
			t.Errorf("write %s: %v", key, err)
		}
	}
}
