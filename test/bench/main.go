// Command bench measures what the README promises: how fast a server starts,
// what it costs when idle, what requests, CRDs and watches cost, and the same
// for kube-apiserver with etcd where these are installed.
//
//	go -C test run ./bench -help
//
// Progress is written to stderr, one table to stdout. Compare only runs of a
// quiet machine: the clients run on the same cores as the server. The CPU
// seconds are those of the server alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measurement is one group of rows of the table.
type measurement struct {
	name string
	// run starts the target as often as it likes and stops it.
	run func(context.Context, *lab, target) error
}

func measurements() []measurement {
	return []measurement{
		{"start", measureStart},
		{"idle", measureIdle},
		{"requests", measureRequests},
		{"crd", measureDefinitions},
		{"watch", measureWatch},
		{"lifecycle", measureLifecycle},
		{"feed", measureFeed},
	}
}

// lab is what measurements need besides the target.
type lab struct {
	options
	dir   string // for binaries and data, removed at the end
	table *table
	log   io.Writer
}

// say writes one line of progress.
func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.log, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// fresh makes an empty directory for the data of one server.
func (l *lab) fresh() (string, error) { return os.MkdirTemp(l.dir, "data-") }

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	opts, err := parse(args, log)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := &lab{options: opts, dir: dir, table: newTable(), log: log}
	targets, err := l.prepare(ctx)
	if err != nil {
		return err
	}
	if l.pgo != "" {
		return writePGO(ctx, l, targets)
	}
	// What was measured before an error is worth keeping.
	return errors.Join(l.measure(ctx, targets), l.table.write(out))
}

// measure fills the table, one column after the other.
func (l *lab) measure(ctx context.Context, targets []target) error {
	for _, t := range targets {
		l.table.column(t.name())
		for _, m := range measurements() {
			if len(l.only) > 0 && !slices.Contains(l.only, m.name) {
				continue
			}
			l.say("%s: %s", t.name(), m.name)
			if err := m.run(ctx, l, t); err != nil {
				return fmt.Errorf("%s: %s: %w", t.name(), m.name, err)
			}
		}
	}
	return nil
}

// prepare builds the programs and returns what is measured.
func (l *lab) prepare(ctx context.Context) ([]target, error) {
	for _, dir := range []string{l.cpuprofile, filepath.Dir(l.pgo)} {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
		}
	}
	root, err := build(ctx, l)
	if err != nil {
		return nil, err
	}
	l.table.machine(root, l.linked)
	var targets []target
	for _, storage := range l.storages {
		targets = append(targets, &sailplane{lab: l, storage: storage})
	}
	if l.compare {
		kube, err := findKube()
		if err != nil {
			l.say("nothing to compare with: %v", err)
			l.table.note(fmt.Sprintf("Not compared: %v.", err))
		} else {
			targets = append(targets, kube)
		}
	}
	return targets, nil
}
