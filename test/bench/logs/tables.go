package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/mysql"
	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/test/database"
	"github.com/sailplane-dev/sailplane/test/program"
)

const (
	// tableKeys are updated in turns, and tableWriters do so at once.
	tableKeys, tableWriters = 10_000, 32
	// sampled are the writes at the beginning and at the end of which the cost is given.
	sampled = 20_000
)

// inDatabase is a storage in a database, and how the size of its tables is asked for.
type inDatabase struct {
	create  func(ctx context.Context, dir string, settings ...string) (*database.Server, error)
	storage func(url string) controlplane.Storage
	// sizes are of the rows, of the indexes and of the row of revisions, in bytes, which a database knows after analyze.
	analyze, sizes string
}

func databases() map[string]inDatabase {
	return map[string]inDatabase{
		"PostgreSQL": {
			database.NewPostgres, func(url string) controlplane.Storage { return postgres.DB{URL: url} }, `ANALYZE`,
			`SELECT pg_table_size('sailplane_changes'), pg_indexes_size('sailplane_changes'), pg_total_relation_size('sailplane_log')`,
		},
		"MariaDB": {
			database.NewMariaDB, func(url string) controlplane.Storage { return mysql.DB{URL: url} },
			`ANALYZE TABLE sailplane_changes, sailplane_log`,
			`SELECT data_length, index_length, (SELECT data_length FROM information_schema.tables WHERE table_name = 'sailplane_log')
				FROM information_schema.tables WHERE table_name = 'sailplane_changes'`,
		},
	}
}

// measureTables measures what many writes leave of a table, and what a write costs before and after them.
func measureTables(ctx context.Context, l *lab) error {
	title(fmt.Sprintf("%d updates of %d objects of 1 KiB in a database", l.writes, tableKeys), "database",
		"first writes: per s, CPU us of the server, of the database", "last writes", "rows", "rows, MiB", "indexes, MiB", "row of revisions, KiB")
	for name, d := range databases() {
		if err := d.measure(ctx, l, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (d inDatabase) measure(ctx context.Context, l *lab, name string) (err error) {
	dir, err := os.MkdirTemp("", "sailplane-logs-database-") // whose owner is the database's user
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := d.create(ctx, dir)
	if errors.Is(err, database.ErrNotInstalled) {
		fmt.Fprintf(os.Stderr, "logs: %s is left out: %v\n", name, err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := server.Await(ctx); err != nil {
		return err
	}
	return with(ctx, d.storage(server.URL("logs")), func(c *clientv3.Client) error {
		w := &updates{client: c, server: server, value: strings.Repeat("x", 1<<10)}
		first, err := w.sample(ctx, sampled)
		if err != nil {
			return err
		}
		for n := 2 * sampled; n < l.writes; n += sampled {
			if _, err := w.sample(ctx, sampled); err != nil {
				return err
			}
		}
		last, err := w.sample(ctx, sampled)
		if err != nil {
			return err
		}
		db, err := database.Connect(server.URL("logs"))
		if err != nil {
			return err
		}
		defer db.Close()
		if _, err := db.ExecContext(ctx, d.analyze); err != nil {
			return err
		}
		var table, indexes, log, rows int64
		if err := db.QueryRowContext(ctx, d.sizes).Scan(&table, &indexes, &log); err != nil {
			return err
		}
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sailplane_changes`).Scan(&rows); err != nil {
			return err
		}
		fmt.Printf("| %s | %s | %s | %d | %d | %d | %d |\n", name, first, last, rows, table>>20, indexes>>20, log>>10)
		return nil
	})
}

// updates writes keys in turns.
type updates struct {
	client *clientv3.Client
	server *database.Server
	value  string
	next   atomic.Int64
}

// sample makes n writes, and says how many a second and what each costs.
func (u *updates) sample(ctx context.Context, n int) (string, error) {
	stored, err := program.TreeCPUTime(u.server.Pid())
	if err != nil {
		return "", err
	}
	own, begun, end := cpu(), time.Now(), u.next.Load()+int64(n)
	var writing sync.WaitGroup
	errs := make([]error, tableWriters)
	for i := range errs {
		writing.Go(func() {
			for at := u.next.Add(1); at <= end && errs[i] == nil; at = u.next.Add(1) {
				_, errs[i] = u.client.Put(ctx, fmt.Sprintf("/registry/tables/%05d", at%tableKeys), u.value)
			}
		})
	}
	writing.Wait()
	took := time.Since(begun)
	own = cpu() - own
	u.next.Store(end)
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	storedAfter, err := program.TreeCPUTime(u.server.Pid())
	each := func(d time.Duration) int64 { return d.Microseconds() / int64(n) }
	return fmt.Sprintf("%.0f, %d, %d", float64(n)/took.Seconds(), each(own), each(storedAfter-stored)), err
}
