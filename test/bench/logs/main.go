// Command logs measures storages alone, below any API server: what an event costs
// when others watch other keys, what history takes in memory, how long a write takes
// while history is compacted, and how much a server reads when it starts on a file.
//
//	go -C test run ./bench/logs
//	go -C test run ./bench/logs -server ../bin/sailplane -only start
//
// It prints Markdown. Compare only figures of one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "logs:", err)
		os.Exit(1)
	}
}

// measurements are in the order in which they are made.
var measurements = []struct {
	name string
	run  func(context.Context, *lab) error
}{
	{"events", measureEvents},
	{"memory", measureMemory},
	{"compaction", measureCompaction},
	{"start", measureStart},
	{"tables", measureTables},
	{"shared", measureShared},
}

// lab is what measurements share.
type lab struct {
	dir, server string
	updates     int
	large       time.Duration
	mebibytes   int
	writes      int
	writers     int
}

func run(ctx context.Context) (err error) {
	l := &lab{}
	only := flag.String("only", "", "measure these only: events,memory,compaction,start,tables,shared")
	flag.StringVar(&l.server, "server", "", "the program sailplane, for start; empty: start is left out")
	flag.IntVar(&l.updates, "updates", 300_000, "updates of 1 KiB, after which memory is measured")
	flag.DurationVar(&l.large, "large", 2*time.Minute, "how long values of 1 MiB are updated, after which memory is measured")
	flag.IntVar(&l.mebibytes, "mebibytes", 200, "data of which a server starts")
	flag.IntVar(&l.writes, "writes", 1_000_000, "updates of 1 KiB in a database, after which tables are measured")
	flag.IntVar(&l.writers, "writers", 32, "how many of these are made at once")
	flag.Parse()
	if l.dir, err = os.MkdirTemp("", "sailplane-logs-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	for _, m := range measurements {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), m.name) {
			continue
		}
		if err := m.run(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// storages are what is measured, each in a place of its own.
func (l *lab) storages() map[string]controlplane.Storage {
	return map[string]controlplane.Storage{
		"memory": memory.Store{},
		"sqlite": sqlite.File{Path: filepath.Join(l.dir, fmt.Sprintf("%d.db", time.Now().UnixNano()))},
	}
}

// with runs f on a storage that runs.
func with(ctx context.Context, s controlplane.Storage, f func(*clientv3.Client) error) (err error) {
	b := s.Open()
	if err := b.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop(context.WithoutCancel(ctx))) }()
	c, err := b.Client()
	if err != nil {
		return err
	}
	return f(c)
}

// each runs f on every storage.
func (l *lab) each(ctx context.Context, f func(name string, s controlplane.Storage) error) error {
	all := l.storages()
	for _, name := range []string{"memory", "sqlite"} {
		if err := f(name, all[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// title begins a table.
func title(text string, columns ...string) {
	fmt.Printf("\n## %s\n\n| %s |\n|%s\n", text, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}
