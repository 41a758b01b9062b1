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
	// tableKeys are updated in turns.
	tableKeys = 10_000
	// sampled are the writes at the beginning and at the end of which the cost is given.
	sampled = 20_000
)

// inDatabase is a storage in a database, and how the size of its tables is asked for.
type inDatabase struct {
	name    string
	create  func(ctx context.Context, dir string, settings ...string) (*database.Server, error)
	storage func(url string) controlplane.Storage
	flush   string // the setting with which it flushes the disk at each commit
	// sizes are of the rows, of the indexes and of the row of revisions, in bytes, which a database knows after analyze.
	analyze, sizes string
}

func databases() []inDatabase {
	return []inDatabase{
		{
			"PostgreSQL", database.NewPostgres, func(url string) controlplane.Storage { return postgres.DB{URL: url} }, "fsync=on", `ANALYZE`,
			`SELECT pg_table_size('sailplane_changes'), pg_indexes_size('sailplane_changes'), pg_total_relation_size('sailplane_log')`,
		},
		{
			"MariaDB", database.NewMariaDB, func(url string) controlplane.Storage { return mysql.DB{URL: url} },
			"--innodb-flush-log-at-trx-commit=1",
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
	for _, d := range databases() {
		if err := d.measure(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

func (d inDatabase) measure(ctx context.Context, l *lab) error {
	return d.run(ctx, nil, func(server *database.Server) error { return d.sizesAfter(ctx, l, server) })
}

// run runs f on a database that is empty.
func (d inDatabase) run(ctx context.Context, settings []string, f func(*database.Server) error) (err error) {
	dir, err := os.MkdirTemp("", "sailplane-logs-database-") // whose owner is the database's user
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := d.create(ctx, dir, settings...)
	if errors.Is(err, database.ErrNotInstalled) {
		fmt.Fprintf(os.Stderr, "logs: %s is left out: %v\n", d.name, err)
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
	return f(server)
}

func (d inDatabase) sizesAfter(ctx context.Context, l *lab, server *database.Server) error {
	return with(ctx, d.storage(server.URL("logs")), func(c *clientv3.Client) error {
		w := &updates{clients: []*clientv3.Client{c}, server: server, value: strings.Repeat("x", 1<<10), writers: l.writers}
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
		fmt.Printf("| %s | %s | %s | %d | %d | %d | %d |\n", d.name, first, last, rows, table>>20, indexes>>20, log>>10)
		return nil
	})
}

// updates writes keys in turns.
type updates struct {
	clients []*clientv3.Client // which the writers take in turns
	server  *database.Server
	value   string
	writers int // at once
	next    atomic.Int64
}

// cost is what writes cost: how many a second, and the CPU us of each.
type cost struct {
	perSecond        float64
	server, database int64
}

// String gives the three figures.
func (c cost) String() string { return fmt.Sprintf("%.0f, %d, %d", c.perSecond, c.server, c.database) }

// sample makes n writes, and says what they cost.
func (u *updates) sample(ctx context.Context, n int) (cost, error) {
	stored, err := program.TreeCPUTime(u.server.Pid())
	if err != nil {
		return cost{}, err
	}
	own, begun, end := cpu(), time.Now(), u.next.Load()+int64(n)
	var writing sync.WaitGroup
	errs := make([]error, u.writers)
	for i := range errs {
		client := u.clients[i%len(u.clients)]
		writing.Go(func() {
			for at := u.next.Add(1); at <= end && errs[i] == nil; at = u.next.Add(1) {
				_, errs[i] = client.Put(ctx, fmt.Sprintf("/registry/tables/%05d", at%tableKeys), u.value)
			}
		})
	}
	writing.Wait()
	took := time.Since(begun)
	own = cpu() - own
	u.next.Store(end)
	if err := errors.Join(errs...); err != nil {
		return cost{}, err
	}
	storedAfter, err := program.TreeCPUTime(u.server.Pid())
	each := func(d time.Duration) int64 { return d.Microseconds() / int64(n) }
	return cost{float64(n) / took.Seconds(), each(own), each(storedAfter - stored)}, err
}
