package aggregator

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// remotes are the servers behind a plane, and the APIServices that they answer.
type remotes struct {
	connections *connections
	given       []*given
	id          string // of this plane, in header Via

	informer cache.SharedIndexInformer
	lister   listers.APIServiceLister
	changed  signal.Change // an APIService that is or was remote, or the operator's files
	routes   atomic.Pointer[routes]
	byGiven  atomic.Pointer[map[*given]*server]

	mu          sync.Mutex
	subscribers []func()
	counted     []func(namespace string, resource schema.GroupResource, more int)
	servers     map[place]*server // for the goroutine of run only
}

// routes are the servers by the group versions that they answer. They do not change: there are
// new ones.
type routes map[schema.GroupVersion]*route

// route is a remote APIService.
type route struct {
	controlplane.GroupVersion
	server *server
}

func newRemotes(c *connections, servers []*given) *remotes {
	r := &remotes{connections: c, given: servers, servers: map[place]*server{}, id: "sailplane-" + rand.Text()}
	r.routes.Store(&routes{})
	return r
}

// remoteIndex has the remote APIServices.
const remoteIndex = "remote"

// watch has the informer find remote APIServices, before it starts. The index tells of
// them: a handler of events would run in planes without any, too.
func (r *remotes) watch(services informers.APIServiceInformer) error {
	r.informer, r.lister = services.Informer(), services.Lister()
	return r.informer.AddIndexers(cache.Indexers{remoteIndex: func(o any) ([]string, error) {
		if s, ok := o.(*apiregistrationv1.APIService); ok && s.Spec.Service != nil {
			r.changed.Announce()
			return []string{s.Name}, nil
		}
		return nil, nil
	}})
}

// any tells whether there are remote APIServices, or servers that could get some.
func (r *remotes) any() bool {
	return len(r.given) > 0 || len(r.informer.GetIndexer().ListIndexFuncValues(remoteIndex)) > 0
}

// follow keeps the servers and the routes those of the APIServices, until the context ends.
// The function is called after each change.
func (r *remotes) follow(ctx context.Context, changed func(), checked func(*server)) {
	defer r.stop()
	for ctx.Err() == nil {
		next := r.changed.Next()
		r.update(ctx, checked)
		changed()
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

// renew has the servers get new connections when the certificate for them changes, until the
// context ends.
func (r *remotes) renew(ctx context.Context) {
	used := r.connections.identity.now.Load()
	for r.connections.identity.changed.Await(ctx, func() bool { return r.connections.identity.now.Load() != used }) == nil {
		first := used == nil
		used = r.connections.identity.now.Load()
		if first { // they have it
			continue
		}
		for s := range r.all() {
			s.renew()
		}
	}
}

func (r *remotes) stop() {
	var ending sync.WaitGroup
	for _, s := range r.servers {
		ending.Go(s.stop)
	}
	ending.Wait()
}

// update makes the routes of the APIServices that there are now, starts their servers, and
// stops those that nobody names any more.
func (r *remotes) update(ctx context.Context, checked func(*server)) {
	now, wanted := routes{}, map[*server][]schema.GroupVersion{}
	used := map[place]*server{}
	serverAt := func(at place) *server {
		s := r.servers[at]
		if s == nil {
			s = newServer(at, r.id, r.connections, checked)
			if r.connections.plan.CountsAggregated() {
				s.census = &census{changed: r.recounted}
			}
			s.start(ctx)
			r.servers[at] = s
		}
		used[at] = s
		return s
	}
	byGiven := map[*given]*server{}
	for _, g := range r.given {
		byGiven[g] = serverAt(g.place())
	}
	r.byGiven.Store(&byGiven)
	for _, name := range r.informer.GetIndexer().ListIndexFuncValues(remoteIndex) {
		a, err := r.lister.Get(name)
		if err != nil || a.Spec.Service == nil {
			continue // it changed, and the next round has it
		}
		gv := schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
		s := serverAt(placeOf(a, r.given))
		wanted[s] = append(wanted[s], gv)
		now[gv] = &route{controlplane.GroupVersion{
			Group: gv.Group, Version: gv.Version, GroupPriority: a.Spec.GroupPriorityMinimum, VersionPriority: a.Spec.VersionPriority,
		}, s}
	}
	for _, s := range used {
		s.want(wanted[s])
	}
	before := r.routes.Swap(&now)
	var ending sync.WaitGroup
	for at, s := range r.servers {
		if used[at] == nil {
			delete(r.servers, at)
			ending.Go(s.stop)
		}
	}
	ending.Wait()
	if !maps.EqualFunc(*before, now, func(a, b *route) bool { return a.GroupVersion == b.GroupVersion }) {
		r.tell()
	}
}

func (r *remotes) tell() {
	r.mu.Lock()
	all := slices.Clone(r.subscribers)
	r.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// all are the servers now.
func (r *remotes) all() map[*server]bool {
	all := map[*server]bool{}
	for _, one := range *r.routes.Load() {
		all[one.server] = true
	}
	if given := r.byGiven.Load(); given != nil {
		for _, s := range *given {
			all[s] = true
		}
	}
	return all
}

// labels are the values of [ServerLabel] that remote APIServices have.
func (r *remotes) labels() []string {
	var all []string
	for _, name := range r.informer.GetIndexer().ListIndexFuncValues(remoteIndex) {
		if s, err := r.lister.Get(name); err == nil && s.Labels[ServerLabel] != "" && !slices.Contains(all, s.Labels[ServerLabel]) {
			all = append(all, s.Labels[ServerLabel])
		}
	}
	return all
}

// counter is a controlplane.AggregatedCounter.
type counter struct{ *remotes }

// Any implements controlplane.AggregatedCounter.
func (c counter) Any() bool { return len(*c.routes.Load()) > 0 }

// Subscribe implements controlplane.AggregatedCounter.
func (c counter) Subscribe(f func(namespace string, resource schema.GroupResource, more int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted = append(c.counted, f)
}

// recounted tells who subscribed.
func (r *remotes) recounted(namespace string, resource schema.GroupResource, more int) {
	r.mu.Lock()
	all := slices.Clone(r.counted)
	r.mu.Unlock()
	for _, f := range all {
		f(namespace, resource, more)
	}
}

// Count implements controlplane.AggregatedCounter.
func (c counter) Count(namespace string, resource schema.GroupResource) (n int, known bool) {
	for gv, one := range *c.routes.Load() {
		if gv.Group != resource.Group || one.server.census == nil {
			continue
		}
		if n, known = one.server.census.count(namespace, resource); known {
			return n, true
		}
	}
	return 0, false
}

// Counts implements controlplane.AggregatedCounter.
func (c counter) Counts(namespace string, gv schema.GroupVersion) (counts map[string]int, known bool) {
	one := (*c.routes.Load())[gv]
	if one == nil || one.server.census == nil {
		return nil, false
	}
	return one.server.census.of(namespace, gv, one.server.state.Load())
}

// serves tells whether another server has versions of a group.
func (r *remotes) serves(group string) bool {
	for gv := range *r.routes.Load() {
		if gv.Group == group {
			return true
		}
	}
	return false
}

// GroupVersions implements controlplane.DynamicGroups.
func (r *remotes) GroupVersions() []controlplane.GroupVersion {
	var all []controlplane.GroupVersion
	for _, one := range *r.routes.Load() {
		gv := one.GroupVersion
		gv.Address = one.server.place.address()
		all = append(all, gv)
	}
	slices.SortFunc(all, func(a, b controlplane.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// Subscribe implements controlplane.DynamicGroups.
func (r *remotes) Subscribe(f func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers = append(r.subscribers, f)
	return nil
}

// Documents implements controlplane.DynamicGroups.
func (r *remotes) Documents() openapi.Source { return source{r} }

// foundBy are the group versions that a given server has; nil as long as that is not known.
func (r *remotes) foundBy(g *given) map[schema.GroupVersion]resources {
	s := r.byGiven.Load()
	if s == nil || (*s)[g] == nil {
		return nil
	}
	now := (*s)[g].state.Load()
	if now.err != nil {
		return nil
	}
	return now.found
}

// ranked are group versions by group, the most stable and newest version first, with their
// place in the group.
func ranked(found map[schema.GroupVersion]resources) iter.Seq2[int, schema.GroupVersion] {
	all := slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
	})
	return func(yield func(int, schema.GroupVersion) bool) {
		n := 0
		for i, gv := range all {
			if n++; i == 0 || all[i-1].Group != gv.Group {
				n = 0
			}
			if !yield(n, gv) {
				return
			}
		}
	}
}

// lasts is a request.LongRunningRequestCheck: what streams at another server has no deadline
// here.
func (r *remotes) lasts(req *http.Request, info *request.RequestInfo) bool {
	return streams(req, info) && (*r.routes.Load())[schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}] != nil
}
