package storm

import (
	"context"
	"fmt"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// progress prints a line now and then.
func (r *run) progress(ctx context.Context, c *client) {
	for behind.Pause(ctx, r.options.Every) == nil {
		u, err := c.usage(ctx, r.plane.front)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.record.wrong("/metrics of the front: %v", err)
		}
		_, deleted := r.spaces.names()
		fmt.Fprintf(r.options.Out, "%v: %s; %d namespaces deleted; the front has %v\n",
			time.Since(r.begun).Round(time.Second), r.record.summary(), deleted, u)
	}
}

func (r *record) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	faults, requests, longest := 0, 0, time.Duration(0)
	for _, k := range r.kinds {
		faults, requests, longest = faults+k.times, requests+k.requests, max(longest, k.longest)
	}
	return fmt.Sprintf("%d faults, %d requests to servers that were not hurt, the longest took %v, %d findings",
		faults, requests, longest.Round(time.Millisecond), r.found)
}

// print prints what came of it.
func (r *run) print() {
	out, took := r.options.Out, time.Since(r.begun).Round(time.Second)
	_, deleted := r.spaces.names()
	fmt.Fprintf(out, "%v: %s; %d namespaces deleted\n", took, r.record.summary(), deleted)
	fmt.Fprintf(out, "the front had %v", r.start)
	if r.end.goroutines > 0 { // it was not stopped before
		fmt.Fprintf(out, ", and has %v; what was deleted was gone %v after the last fault", r.end, r.settled.Round(time.Millisecond))
	}
	fmt.Fprintln(out)
	for _, g := range r.groups {
		if g.watch != nil {
			fmt.Fprintf(out, "%s: its watch began %d times\n", g.server, g.watch.begun)
		}
	}
	r.record.table(out)
}
