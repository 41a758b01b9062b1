// Command siege attacks a server that is made with the defaults of "sailplane serve",
// and measures what another tenant of it notices.
//
//	go -C test run ./siege -help
//
// For every attack and storage a server is started. A tenant works in a namespace of
// its own: it gets and creates ConfigMaps, at a pace that no limit meets. First as many
// connections as the attack has do small gets, which is the baseline; then they attack,
// as another tenant, at nice 19 and with bodies that were made before. The goal is that
// the tenant's requests take at most three times as long (the slowest of a hundred), and
// that the process grows by at most 1 GiB. Then the administrator makes many updates, after which
// the process may have 250 MiB. What misses a goal is marked, and the exit status is 1.
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

	"github.com/sailplane-dev/sailplane/test/program"
)

// options are what the command line says.
type options struct {
	storages, attacks []string
	binary            string
	clients           int
	span              time.Duration
	rounds            int
	slower            float64 // how many times as long a request of the tenant may take
	growth            float64 // MiB
	baseline          string
	percent           int
	updates           int
	settle            time.Duration
	args              []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && args[0] == attackCommand {
		return assault(ctx, os.Stdin, os.Stdout)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "siege-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.binary == "" {
		if o.binary, err = program.Sailplane(ctx, dir); err != nil {
			return err
		}
	}
	var all results
	for _, storage := range o.storages {
		for _, name := range o.attacks {
			fmt.Fprintf(os.Stderr, "%s %s on %s\n", time.Now().Format(time.TimeOnly), name, storage)
			r, err := o.besiege(ctx, filepath.Join(dir, storage+"-"+strings.ReplaceAll(name, " ", "-")), storage, name)
			if err != nil {
				return fmt.Errorf("%s on %s: %w", name, storage, err)
			}
			all = append(all, r)
			fmt.Fprintln(os.Stderr, "  "+r.line(o))
		}
	}
	var updated []grown
	for _, storage := range o.storages {
		for i, of := range o.serieses() {
			fmt.Fprintf(os.Stderr, "%s %d %s on %s\n", time.Now().Format(time.TimeOnly), of.updates, of.title, storage)
			g, err := o.grow(ctx, filepath.Join(dir, fmt.Sprint(storage, "-updates-", i)), storage, of)
			if err != nil {
				return fmt.Errorf("%s on %s: %w", of.title, storage, err)
			}
			updated = append(updated, g)
			fmt.Fprintln(os.Stderr, "  "+g.line())
		}
	}
	fmt.Print(all.table(o), grownTable(updated))
	return errors.Join(all.missed(o), missed(updated))
}

func parse(args []string) (options, error) {
	names := attackNames()
	set := flag.NewFlagSet("siege", flag.ContinueOnError)
	storages := set.String("storages", "memory,sqlite,etcd", "storages to attack")
	attacks := set.String("attacks", "all", "attacks, separated by commas, empty for none: "+strings.Join(names, ", ")+"; "+together+" is all of them at once")
	o := options{}
	set.StringVar(&o.binary, "binary", "", "the server; empty: it is built from the source")
	set.IntVar(&o.clients, "clients", 20, "connections of the attackers")
	set.DurationVar(&o.span, "span", 15*time.Second, "how long each attack takes, and each baseline")
	set.IntVar(&o.rounds, "rounds", 1, "how often baseline and attack take turns: what drifts on the machine is in both then")
	set.Float64Var(&o.slower, "slower", 3, "how many times as long the tenant's requests may take")
	set.Float64Var(&o.growth, "growth", 1024, "MiB that the process may grow by")
	set.IntVar(&o.updates, "updates", 300_000, "updates of 1 KiB after which the memory of the server is measured; 0: none")
	set.DurationVar(&o.settle, "settle", 10*time.Second, "how long after the updates")
	set.IntVar(&o.percent, "percentile", 99, "which of a hundred requests, by their times, is compared")
	idle := set.Bool("idle", false, "in the baseline nobody does anything beside the tenant")
	flags := set.String("serve", "", "further flags of serve, separated by spaces")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	o.storages, o.args = strings.Split(*storages, ","), strings.Fields(*flags)
	o.attacks, o.baseline = append(slices.Clone(names), together), baseline
	if *idle {
		o.baseline = nothing
	}
	if *attacks != "all" {
		o.attacks = strings.FieldsFunc(*attacks, func(r rune) bool { return r == ',' })
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("there are no %d rounds: want 1 or more", o.rounds)
	}
	if o.percent < 0 || o.percent > 99 {
		return o, fmt.Errorf("there is no percentile %d here: want 0 to 99", o.percent)
	}
	for _, name := range o.attacks {
		if name != together && !slices.Contains(names, name) {
			return o, fmt.Errorf("there is no attack %q: want some of %s", name, strings.Join(names, ", "))
		}
	}
	return o, nil
}

// besiege starts a server, and measures the baseline and the attack in turns.
func (o options) besiege(ctx context.Context, dir, storage, name string) (r result, err error) {
	s, err := o.start(ctx, dir, storage)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	w, err := s.furnish(ctx)
	if err != nil {
		return r, err
	}
	r = result{attack: name, storage: storage}
	for range o.rounds {
		calm, err := o.measure(ctx, s, w, o.baseline)
		if err != nil {
			return r, fmt.Errorf("baseline: %w", err)
		}
		storm, err := o.measure(ctx, s, w, name)
		if err != nil {
			return r, err
		}
		r.calm.add(calm)
		r.storm.add(storm)
	}
	return r, nil
}

// measure has the tenant work while the attackers do what the name says.
func (o options) measure(ctx context.Context, s *server, w *world, name string) (m measured, err error) {
	a, err := o.attackers(ctx, w, name)
	if err != nil {
		return m, err
	}
	before, err := s.memory()
	if err != nil {
		return m, errors.Join(err, a.end())
	}
	if err := errors.Join(s.forgetPeak(), a.begin()); err != nil {
		return m, errors.Join(err, a.end())
	}
	cpu := s.cpu()
	m.times, err = w.work(ctx, o.span)
	m.cpu = s.cpu() - cpu
	err = errors.Join(err, a.end(), s.ended())
	if err != nil {
		return m, err
	}
	m.answers = a.counted
	after, err := s.memory()
	m.growth = (after.peak - before.now) / (1 << 20)
	return m, err
}
