package insight

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// patience is how long each answer of the server to itself may take: a report of a
	// server in trouble has what could be found out.
	patience = 3 * time.Second
	// mostAskers is how many users a report has.
	mostAskers = 10
)

// report looks at the server of the root plane.
func report(ctx context.Context, root *controlplane.Plane, requests *requests, begun time.Time) *Report {
	server := root.Server()
	planes := append([]*controlplane.Plane{root}, server.Planes()...)
	r := &Report{Server: process(ctx, root, begun), Served: served(root), Storage: storage(ctx, server), Levels: levels(ctx, root)}
	r.Planes, r.Resources, r.Caches = stored(planes)
	r.Aggregated = aggregated(planes)
	r.Servers = peers(ctx, server)
	requests.report(r, time.Now(), begun)
	return r
}

// aggregated are the servers behind planes.
func aggregated(planes []*controlplane.Plane) []Aggregated {
	var all []Aggregated
	for _, p := range planes {
		for _, s := range p.AggregatedServers() {
			one := Aggregated{
				Plane: p.Name(), Name: s.Name, Address: s.Address, Groups: s.Groups, Problem: s.Problem, Since: s.Since,
				LatencySeconds: s.Latency.Seconds(), Conflicts: s.Conflicts,
			}
			for _, gv := range slices.Sorted(maps.Keys(s.Missing)) {
				one.Problem = strings.TrimPrefix(one.Problem+"; "+gv+": "+s.Missing[gv], "; ")
			}
			one.Available = one.Problem == ""
			all = append(all, one)
		}
	}
	return all
}

// peers are the servers on the storage; none if they cannot be listed.
func peers(ctx context.Context, server *controlplane.Server) (all []Peer) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := server.Peers(ctx)
	if err != nil {
		return nil // the checks say what is wrong
	}
	for _, p := range found {
		all = append(all, Peer{ID: p.ID, Address: p.Address, Self: p.Self, Renewed: p.Renewed, LagRevisions: p.Lag, Work: p.Work})
	}
	return all
}

// process is what is known of the process and of the server.
func process(ctx context.Context, root *controlplane.Plane, begun time.Time) Server {
	kubernetes, own, _ := strings.Cut(controlplane.Version().GitVersion, "+")
	s := Server{
		Name: root.Server().Name(), Version: strings.TrimPrefix(strings.TrimPrefix(own, "sailplane"), "."), Kubernetes: kubernetes,
		Go: runtime.Version(), Started: begun, UptimeSeconds: time.Since(begun).Seconds(),
		Goroutines: runtime.NumGoroutine(),
	}
	s.MemoryBytes, s.LiveBytes = memory()
	s.Failed = failed(ctx, root)
	s.Ready = len(s.Failed) == 0
	return s
}

// memory is what the process has from the operating system for Go, and what is live.
func memory() (all, live uint64) {
	s := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64(), s[2].Value.Uint64()
}

// get asks the plane itself for a path. The body is there also with an error.
func get(ctx context.Context, plane *controlplane.Plane, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b, err := plane.Client().Discovery().RESTClient().Get().MaxRetries(0).AbsPath(path).Param("verbose", "").Do(ctx).Raw()
	return string(b), err
}

// failed are the checks of /readyz that fail, and why.
func failed(ctx context.Context, plane *controlplane.Plane) []Check {
	text, err := get(ctx, plane, "/readyz")
	if err == nil {
		return nil
	}
	var checks []Check
	for line := range strings.Lines(text) {
		rest, fails := strings.CutPrefix(line, "[-]")
		if !fails {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		why, err := get(ctx, plane, "/readyz/"+name)
		if err == nil {
			continue // it is well by now
		}
		checks = append(checks, Check{name, strings.TrimSpace(strings.TrimPrefix(why, "internal server error: "))})
	}
	if len(checks) == 0 && text == "" {
		checks = append(checks, Check{"readyz", err.Error()})
	}
	return checks
}

// served counts what discovery has; of a server behind the plane that does not
// answer, nothing.
func served(plane *controlplane.Plane) Served {
	config := plane.Config()
	config.Timeout = patience
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Served{}
	}
	groups, lists, _ := client.ServerGroupsAndResources() // the error is about groups that are missing
	resources := map[schema.GroupResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		for _, r := range list.APIResources {
			if err == nil && !strings.Contains(r.Name, "/") {
				resources[gv.WithResource(r.Name).GroupResource()] = true
			}
		}
	}
	return Served{Groups: len(groups), Resources: len(resources)}
}

// storage is the state of the storage.
func storage(ctx context.Context, server *controlplane.Server) Storage {
	s := server.Storage(ctx)
	return Storage{
		Engine: s.Engine, Revision: s.Revision, FileBytes: s.File, HistoryBytes: s.History,
		Compacted: s.Compacted, Backup: s.Backup.Taken, LagRevisions: s.Lag,
	}
}

// stored counts objects, and the caches in front of them.
func stored(planes []*controlplane.Plane) (each []Plane, resources []Resource, caches []Cache) {
	sums, cached := map[schema.GroupResource]feed.Total{}, map[schema.GroupResource]Cache{}
	for i, plane := range planes {
		one := Plane{Name: plane.Name(), Ready: signal.Closed(plane.Ready())}
		var totals map[schema.GroupResource]feed.Total
		// The root plane has its feed when its work begins, another plane when it is ready.
		if i == 0 || one.Ready {
			if f := plane.Feed(); f != nil {
				one.Counted, totals = true, f.Totals()
			}
		}
		for resource, t := range totals {
			one.Objects += t.Objects
			one.Bytes += t.Bytes
			sum := sums[resource]
			sum.Objects += t.Objects
			sum.Bytes += t.Bytes
			sums[resource] = sum
		}
		for _, resource := range plane.Caches() {
			c := cached[resource]
			cached[resource] = Cache{resource.String(), c.Caches + 1, c.Objects + totals[resource].Objects}
		}
		each = append(each, one)
	}
	for resource, sum := range sums {
		resources = append(resources, Resource{resource.String(), sum.Objects, sum.Bytes})
	}
	slices.SortFunc(resources, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Resource, b.Resource))
	})
	caches = slices.SortedFunc(maps.Values(cached), func(a, b Cache) int {
		return cmp.Or(b.Objects-a.Objects, strings.Compare(a.Resource, b.Resource))
	})
	return each, resources, caches
}

// levels are the priority levels of a plane, from a page that upstream has for them:
// lines of fields, the first one with their names.
// https://kubernetes.io/docs/reference/debug-cluster/flow-control/
func levels(ctx context.Context, plane *controlplane.Plane) []Level {
	text, err := get(ctx, plane, "/debug/api_priority_and_fairness/dump_priority_levels")
	if err != nil {
		return nil // there is no such page without flow control
	}
	var all []Level
	column := map[string]int{}
	for line := range strings.Lines(text) {
		fields := strings.Split(line, ",")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if len(column) == 0 {
			for i, name := range fields {
				column[name] = i
			}
			continue
		}
		number := func(name string) int64 {
			i, ok := column[name]
			if !ok || i >= len(fields) {
				return 0
			}
			n, _ := strconv.ParseInt(fields[i], 10, 64) // a level without queues has <none>
			return n
		}
		all = append(all, Level{
			Name: fields[0], Executing: number("ExecutingRequests"), Waiting: number("WaitingRequests"),
			Rejected: number("RejectedRequests") + number("TimedoutRequests"),
		})
	}
	return all
}

// report adds what was counted.
func (r *requests) report(to *Report, now, begun time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	watches := map[asker]int{}
	for who, n := range r.watches {
		watches[who.asker()] += n
		to.Watches += n
	}
	total := map[asker]counts{}
	to.Total = users(total, r.total.addTo(total), watches)
	to.Total.Seconds = now.Sub(begun).Seconds()
	r.advance(now)
	recent := map[asker]counts{}
	var others counts
	for _, t := range r.recent {
		others.add(t.addTo(recent))
	}
	to.Recent = users(recent, others, watches)
	first := time.Unix((r.minute-minutes+1)*60, 0)
	to.Recent.Seconds = min(now.Sub(first).Seconds(), to.Total.Seconds)
	to.SlowSeconds = r.slowAfter.Seconds()
	for i := range mostSlow {
		if s := r.slow[(r.slowEnd-1-i+mostSlow)%mostSlow]; s.plane != nil {
			s.SlowRequest.Plane = s.plane.name()
			to.Slow = append(to.Slow, s.SlowRequest)
		}
	}
}

// users are those with the most requests, and the sum of the others.
func users(counted map[asker]counts, others counts, watches map[asker]int) Users {
	var all []User
	rest := User{Requests: others.requests, Seconds: others.seconds, Errors: others.failed}
	for who, c := range counted {
		all = append(all, User{
			Plane: who.plane, User: who.user, Requests: c.requests, Seconds: c.seconds, Errors: c.failed, Watches: watches[who],
		})
	}
	for _, n := range watches {
		rest.Watches += n
	}
	slices.SortFunc(all, func(a, b User) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Plane, b.Plane), strings.Compare(a.User, b.User))
	})
	top := all[:min(len(all), mostAskers)]
	for _, u := range top {
		rest.Watches -= u.Watches
	}
	for _, u := range all[len(top):] {
		rest.Requests += u.Requests
		rest.Seconds += u.Seconds
		rest.Errors += u.Errors
	}
	return Users{Users: top, Others: rest}
}
