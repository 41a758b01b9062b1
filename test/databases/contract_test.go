//go:build unix

// Package databases runs the contract of storages on PostgreSQL and MariaDB, and what else is
// promised of servers that share a database.
package databases

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/mysql"
	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
	"github.com/sailplane-dev/sailplane/test/database"
)

// startTimeout is how long a database may take to start on a busy machine.
const startTimeout = 2 * time.Minute

// engine is a storage with a database to run it on.
type engine struct {
	name    string
	start   func(testing.TB, ...string) *database.Server
	storage func(url string) controlplane.Storage
}

func engines() []engine {
	return []engine{
		{"postgres", database.Postgres, func(url string) controlplane.Storage {
			return postgres.DB{URL: url, DialTimeout: startTimeout}
		}},
		{"mariadb", database.MariaDB, func(url string) controlplane.Storage {
			return mysql.DB{URL: url, DialTimeout: startTimeout}
		}},
	}
}

// each runs a test on each engine.
func each(t *testing.T, test func(*testing.T, engine)) {
	t.Helper()
	t.Parallel()
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// TestContract holds the storages to what every storage promises.
func TestContract(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		var n atomic.Int64
		open := func(testing.TB) controlplane.Storage {
			name := fmt.Sprintf("contract_%d", n.Add(1))
			if e.name == "postgres" { // a database takes a second there, and a schema none
				database.Exec(t, server.URL("postgres"), "CREATE SCHEMA "+name)
				return e.storage(database.With(server.URL("postgres"), "search_path="+name))
			}
			return e.storage(server.URL(name))
		}
		storagetest.Run(t, open)
		storagetest.RunPersistent(t, open)
	})
}
