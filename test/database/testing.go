//go:build unix

package database

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
)

// startTimeout is how long a database may take to start on a busy machine.
const startTimeout = 2 * time.Minute

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
	s.await(t)
	return s
}

// await waits until the server takes connections.
func (s *Server) await(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	db := Open(t, s.URL(s.kind.first))
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("it takes no connections: %v", err)
		}
	}
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
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	driver := "pgx"
	if u.Scheme == "postgres" {
		address += "?default_query_exec_mode=simple_protocol"
	} else {
		config := mysql.NewConfig()
		config.User, config.Net, config.Addr, config.DBName = u.User.Username(), "tcp", u.Host, u.Path[1:]
		config.Passwd, _ = u.User.Password()
		config.MultiStatements = true
		driver, address = "mysql", config.FormatDSN()
	}
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
