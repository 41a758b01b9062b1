//go:build unix

package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Postgres starts a [NewPostgres] until the test ends.
func Postgres(t testing.TB, settings ...string) *Server {
	t.Helper()
	return started(t, NewPostgres, settings)
}

// MariaDB starts a [NewMariaDB] until the test ends.
func MariaDB(t testing.TB, settings ...string) *Server {
	t.Helper()
	return started(t, NewMariaDB, settings)
}

func started(t testing.TB, create func(context.Context, string, ...string) (*Server, error), settings []string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sailplane-database") // that of a test may not be given away
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s, err := create(t.Context(), dir, settings...)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("SAILPLANE_CI") == "" {
		t.Skip(err)
	}
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the database said:\n%s", s.Output())
		}
	})
	if err := s.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// Exec executes statements in a database.
func Exec(t testing.TB, address, statements string) {
	t.Helper()
	if _, err := Open(t, address).ExecContext(t.Context(), statements); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}

// Open opens a database by its URL, until the test ends. It takes several statements at once.
func Open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// DelayCommits has every second row of a table delay the commit of its transaction: what is committed
// next may have been numbered before.
func DelayCommits(t testing.TB, address, table string) {
	t.Helper()
	scheme, _, _ := strings.Cut(address, "://")
	Exec(t, address, fmt.Sprintf(map[string]string{
		"postgres": `CREATE FUNCTION delay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(random() * 0.02); RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER delayed AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id %% 2 = 0) EXECUTE FUNCTION delay()`,
		"mysql": `CREATE TRIGGER late AFTER INSERT ON %s FOR EACH ROW DO SLEEP(IF(NEW.id %% 2 = 0, RAND() * 0.02, 0))`,
	}[scheme], table))
}
