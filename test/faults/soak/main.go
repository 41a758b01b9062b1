// Soak runs many rounds of faults for each engine. It can be stopped at any
// time and goes on where it was: what is done is in DIR/rounds.jsonl, one line
// a round. The histories that are illegal are in DIR/histories, each with a
// picture.
//
//	go -C test run ./faults/soak -rounds 1000 -dir ../.soak
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/sailplane-dev/sailplane/test/faults"
	"github.com/sailplane-dev/sailplane/test/faults/disk"
)

// options are the flags.
type options struct {
	dir             string
	rounds, workers int
	engines, faults string
	keep, report    bool
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", ".soak", "where the record of rounds and the histories are")
	flag.IntVar(&o.rounds, "rounds", 1000, "how many rounds each engine has, with those of earlier runs")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "how many rounds run at once")
	flag.StringVar(&o.engines, "engines", strings.Join(slices.Sorted(maps.Keys(faults.Plan())), ","), "which engines")
	flag.StringVar(&o.faults, "faults", "", "which faults, instead of all that an engine can have")
	flag.BoolVar(&o.keep, "keep", false, "keep the histories that are legal, too")
	flag.BoolVar(&o.report, "report", false, "print the table of what is done and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// run runs what is left to do. It returns whether any round failed, now or before.
func run(ctx context.Context, o options) (failed bool, err error) {
	histories := filepath.Join(o.dir, "histories")
	if err := os.MkdirAll(histories, 0o755); err != nil {
		return false, err
	}
	r, err := openRecord(filepath.Join(o.dir, "rounds.jsonl"))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if !o.report {
		if err := rounds(ctx, o, r, histories); err != nil {
			return false, err
		}
	}
	return table(os.Stdout, r.done), nil
}

// rounds runs the rounds that are missing.
func rounds(ctx context.Context, o options, r *record, histories string) error {
	left, err := missing(r.done, o)
	if err != nil || len(left) == 0 {
		return err
	}
	if slices.ContainsFunc(left, func(t task) bool { return t.Fault == faults.Power }) {
		if err := disk.Available(); err != nil {
			return fmt.Errorf("%w; or choose other -faults", err)
		}
	}
	programs, err := os.MkdirTemp("", "sailplane-soak-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(programs) }()
	built, err := faults.Build(ctx, programs)
	if err != nil {
		return err
	}
	w := &work{record: r, programs: built, dir: programs, histories: histories, keep: o.keep}
	return w.do(ctx, left, o.workers)
}

// task is a round that is to be run.
type task struct{ Engine, Fault string }

// missing are the rounds that are to be run: those of all engines in turn, and
// of each engine all faults in turn.
func missing(done []line, o options) ([]task, error) {
	plan := faults.Plan()
	have := map[string]int{}
	for _, l := range done {
		have[l.Engine]++
	}
	perEngine := map[string][]task{}
	for engine := range strings.SplitSeq(o.engines, ",") {
		all, found := plan[engine]
		if !found {
			return nil, fmt.Errorf("engine %q: want some of %v", engine, slices.Sorted(maps.Keys(plan)))
		}
		if o.faults != "" {
			all = slices.DeleteFunc(slices.Clone(all), func(f string) bool { return !slices.Contains(strings.Split(o.faults, ","), f) })
		}
		for i := have[engine]; i < o.rounds && len(all) > 0; i++ {
			perEngine[engine] = append(perEngine[engine], task{engine, all[i%len(all)]})
		}
	}
	var left []task
	for i := range o.rounds {
		for _, engine := range slices.Sorted(maps.Keys(perEngine)) {
			if i < len(perEngine[engine]) {
				left = append(left, perEngine[engine][i])
			}
		}
	}
	return left, nil
}
