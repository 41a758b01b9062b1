// Package storm has clients work through a front while harm is done to the servers behind it,
// one after the other, and says what of it others noticed, and what was lost.
//
// The front and two servers behind it are of Sailplane; the third is sample-apiserver. Each is a
// process of its own, and so is the etcd of the last.
package storm

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// Options say how long it takes, and what is wrong.
type Options struct {
	Programs behind.Programs
	Dir      string // for what servers keep and write
	Out      io.Writer
	For      time.Duration
	// Every is how often progress is printed.
	Every time.Duration
	// Longest is how long a server is hurt at most.
	Longest time.Duration
	// Slowest is how long a request to a server may take that is not hurt.
	Slowest time.Duration
	// Again is how soon a server is available that says of itself that it is ready.
	Again time.Duration
	// Settle is how soon all that was deleted is gone when nothing is hurt any more.
	Settle time.Duration
}

// writers is how many clients write each group.
const writers = 2

// Run does it. It returns whether anything was wrong; an error is one of its own. When the context
// ends, it ends with what there is.
func Run(ctx context.Context, o Options) (failed bool, err error) {
	begun := time.Now()
	p, err := startPlane(ctx, o)
	defer p.stop()
	if err != nil {
		return false, err
	}
	r := &run{options: o, plane: p, begun: begun, record: newRecord(o.Slowest, o.Out), groups: p.groups()}
	client, err := newClient(p.front.Kubeconfig, r.record)
	if err != nil {
		return false, err
	}
	r.spaces = newSpaces(p, client)
	err = r.run(ctx, client)
	r.print()
	if ctx.Err() != nil { // what came to its end by that is no finding
		fmt.Fprintln(o.Out, "stopped: what was written was not compared")
		err = nil
	}
	return r.record.failed(), err
}

// run is a storm that runs.
type run struct {
	options Options
	plane   *plane
	record  *record
	begun   time.Time

	start, end usage
	settled    time.Duration
	spaces     *spaces
	groups     []*group
}

func (r *run) run(ctx context.Context, client *client) (err error) {
	if r.start, err = client.usage(ctx, r.plane.front); err != nil {
		return err
	}
	working, stopWork := context.WithTimeout(ctx, r.options.For)
	defer stopWork()
	watching, stopWatch := context.WithCancel(ctx)
	var work, watches, progress sync.WaitGroup
	defer func() { stopWork(); stopWatch(); work.Wait(); watches.Wait(); progress.Wait() }()
	progress.Go(func() { r.progress(watching, client) })
	progress.Go(func() {
		if err := r.record.pulse.beats(watching, r.options.Dir); err != nil {
			r.record.wrong("the disk: %v", err)
		}
	})
	for _, g := range r.groups {
		g.watch = &watch{group: g, client: client}
		watches.Go(func() { g.watch.follow(watching) })
		for n := range writers {
			w := &writer{group: g, id: n, client: client, spaces: r.spaces, objects: map[string]*object{}}
			g.writers = append(g.writers, w)
			work.Go(func() { w.work(working, ctx) })
		}
	}
	work.Go(func() { r.spaces.work(working, ctx) })
	err = r.hurt(working, ctx, client)
	stopWork()
	work.Wait()
	if err == nil && ctx.Err() == nil {
		err = r.settle(ctx, client)
	}
	if err == nil && ctx.Err() == nil {
		r.end, err = client.usage(ctx, r.plane.front)
	}
	return err
}

// hurt does harm to a server, mends it, and looks whether it is available again, until the time is over.
func (r *run) hurt(working, ctx context.Context, client *client) error {
	faults := behind.Faults()
	for behind.Pause(working, rand.N(r.options.Longest/4)) == nil {
		s, f := r.plane.servers[rand.IntN(len(r.plane.servers))], faults[rand.IntN(len(faults))]
		r.record.hurt(s.Name, f.Name)
		if err := f.Hurt(ctx, s); err != nil {
			return fmt.Errorf("%s, to be %s: %w", s.Name, f.Name, err)
		}
		_ = behind.Pause(working, r.options.Longest/20+rand.N(r.options.Longest)) // over: it is mended at once
		if err := f.Mend(ctx, s); err != nil {
			return fmt.Errorf("%s, after it was %s: %w", s.Name, f.Name, err)
		}
		if err := s.Ready(ctx); err != nil {
			return fmt.Errorf("%s, after it was %s: %w", s.Name, f.Name, err)
		}
		ready := time.Now()
		if err := behind.Until(ctx, r.options.Settle, func(ctx context.Context) error { return r.available(ctx, client, s) }); err != nil {
			if ctx.Err() != nil {
				return err
			}
			r.record.wrong("%s is not available %v after it was %s: %v", s.Name, r.options.Settle, f.Name, err)
			return nil
		}
		r.record.mended(s.Name, time.Since(ready), r.options.Again)
	}
	return nil
}

// available tells whether the front says so of a server, and hands requests on to it.
func (r *run) available(ctx context.Context, client *client, s *behind.Server) error {
	for _, g := range r.groups {
		if g.server != s.Name {
			continue
		}
		if err := client.available(ctx, g); err != nil {
			return err
		}
		if a := client.do(ctx, g.server, http.MethodGet, g.all()+"?limit=1", nil); a.status != http.StatusOK {
			return fmt.Errorf("a list of %s: %v", g.resource, a)
		}
	}
	return nil
}
