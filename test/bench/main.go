// Command bench measures what the README promises: how fast a server starts,
// what it costs when idle, what requests, lists, CRDs and watches cost, and the
// same for kube-apiserver with etcd and with kine, which it builds from the
// module in peers/. Of Sailplane alone, it measures copies of a storage and backups
// as well, which are those of the binary.
//
//	go -C test run ./bench -help
//
// Every round measures one target after the other, so that what else the machine
// does meets all of them; medians of the rounds count. Progress is written to
// stderr, Markdown to stdout. Compare only figures of one run: the clients run
// on the same cores as the server. The CPU seconds are those of the server
// alone, with the storage beside it.
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
	"strings"
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

// measurement is one group of figures.
type measurement struct {
	name string
	// run starts the target as often as it likes and stops it. It does nothing
	// when it is not for the target.
	run func(context.Context, *lab, target) error
}

func measurements() []measurement {
	return []measurement{
		{"start", measureStart},
		{"idle", measureIdle},
		{"requests", measureRequests},
		{"list", measureList},
		{"crd", measureDefinitions},
		{"watch", measureWatch},
		{"planes", measurePlanes},
		{"lifecycle", measureLifecycle},
		{"feed", measureFeed},
		{aggregatedName, measureAggregated},
		{virtualName, measureVirtual},
		{keptName, measureKept},
		{sharedName, measureShared},
		{copyName, measureCopy},
		{backupName, measureBackup},
	}
}

// ownMeasurement is one that has targets of its own.
type ownMeasurement struct {
	name string
	run  func(context.Context, *lab) error
}

func measurementsOfTheirOwn() []ownMeasurement {
	return []ownMeasurement{{partsName, measureParts}, {lendingName, measureLending}}
}

// lab is what measurements need besides the target.
type lab struct {
	options
	dir     string // for binaries and data, removed at the end
	round   int
	results *results
	parts   *results // of the servers that differ in one part
	lent    *results // of what has storage for other API servers
	notes   []string
	log     io.Writer
	// original is what is copied. Nil: nothing was yet.
	original *original
}

func newLab(o options, dir string, log io.Writer) *lab {
	return &lab{
		options: o, dir: dir, log: log,
		results: newResults(columnKube), parts: newResults(""), lent: newResults(columnOwnEtcd),
	}
}

// say writes one line of progress.
func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.log, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// note keeps a line that stands with the results.
func (l *lab) note(format string, args ...any) {
	l.notes = append(l.notes, fmt.Sprintf(format, args...))
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
	if err := os.Chmod(dir, 0o711); err != nil { // databases run as users of their own, in directories that have them
		return err
	}
	l := newLab(opts, dir, log)
	targets, err := l.prepare(ctx)
	if err != nil {
		return err
	}
	if l.pgo != "" {
		return writePGO(ctx, l, targets)
	}
	// What was measured before an error is worth keeping, but not publishing.
	err = l.measure(ctx, targets)
	_, printed := io.WriteString(out, l.page(false))
	if err == nil && l.docs != "" {
		err = l.publish()
	}
	return errors.Join(err, printed)
}

// selected says that a measurement is to be made.
func (l *lab) selected(name string) bool { return len(l.only) == 0 || slices.Contains(l.only, name) }

// measure makes all measurements in each round. Where one cannot be made it
// goes on with the next.
func (l *lab) measure(ctx context.Context, targets []target) error {
	var errs []error
	for l.round = range l.rounds {
		for _, m := range measurements() {
			if !l.selected(m.name) {
				continue
			}
			for i := range targets {
				// Nobody is always the first.
				t := targets[(i+l.round)%len(targets)]
				if ctx.Err() != nil {
					return errors.Join(append(errs, ctx.Err())...)
				}
				l.say("round %d of %d: %s: %s", l.round+1, l.rounds, m.name, t.name())
				l.results.measure(t.name())
				if err := m.run(ctx, l, t); err != nil {
					l.say("%v", err)
					errs = append(errs, fmt.Errorf("%s: %s: %w", t.name(), m.name, err))
				}
			}
		}
		for _, own := range measurementsOfTheirOwn() {
			if !l.selected(own.name) {
				continue
			}
			if err := own.run(ctx, l); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", own.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// measurementNames are the values of -only.
func measurementNames() []string {
	var names []string
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	for _, m := range measurementsOfTheirOwn() {
		names = append(names, m.name)
	}
	return names
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
	l.describe(root)
	var targets []target
	var built *peers
	for _, name := range l.targets {
		kubes := strings.HasPrefix(name, kubePrefix)
		if kubes && (l.pgo != "" || l.noTargets()) {
			continue
		}
		if built == nil && (kubes || name == sharedEtcd) {
			if built, err = preparePeers(ctx, l, root); err != nil {
				return nil, err
			}
		}
		switch {
		case slices.Contains(sharedNames(), name):
			targets = append(targets, l.sharedTarget(name, built))
		case kubes:
			targets = append(targets, &kube{lab: l, peers: built, kine: name == kubeKine})
		default:
			targets = append(targets, &sailplane{lab: l, storage: name})
		}
	}
	// The columns have an order whichever target is the first of a round.
	for _, t := range targets {
		l.results.measure(t.name())
	}
	return targets, nil
}

// noTargets says that nothing is measured of the targets, so that no peer is needed.
func (l *lab) noTargets() bool {
	return len(l.only) > 0 && !slices.ContainsFunc(measurements(), func(m measurement) bool { return l.selected(m.name) })
}
