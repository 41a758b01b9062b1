package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// censusPage is how many objects are listed at once, to be counted.
	censusPage = 500
	// censusPause is the pause after a count that failed, or a watch that ended.
	censusPause = time.Second
	// metadataAs asks for the metadata of objects only.
	metadataAs = "application/json;as=%s;g=meta.k8s.io;v=v1,application/json"
)

// census counts the objects of a server that are deleted with their namespaces: by a list, and
// from then on by a watch. It keeps a number for each namespace, and no objects.
type census struct {
	changed func(namespace string, resource schema.GroupResource, more int)

	mu   sync.Mutex
	all  map[schema.GroupVersionResource]*tally
	work sync.WaitGroup
}

// tally is what is known of one resource.
type tally struct {
	counts map[string]int    // by namespace; nil before the first list, and kept while the server is away
	unseen map[string]unseen // by namespace
	since  time.Time         // there is a watch; zero: there is none
	end    context.CancelFunc
}

// of returns the counts of a group version in a namespace, with what may have been created and
// was not counted yet. They are known when each of its resources was counted.
func (c *census) of(namespace string, gv schema.GroupVersion, now *state) (counts map[string]int, known bool) {
	discovered, ok := now.found[gv]
	if !ok {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	counts = map[string]int{}
	for _, r := range discovered.Resources {
		if !countable(r) {
			if r.Scope == apidiscoveryv2.ScopeNamespace && deletable(r) {
				return nil, false // it can be deleted, and not counted
			}
			continue
		}
		t := c.all[gv.WithResource(r.Resource)]
		if t == nil || t.counts == nil {
			return nil, false
		}
		counts[r.Resource] = t.counts[namespace] + t.unseen[namespace].all
	}
	return counts, true
}

func deletable(r apidiscoveryv2.APIResourceDiscovery) bool {
	return slices.Contains(r.Verbs, "delete") || slices.Contains(r.Verbs, "deletecollection")
}

// countable tells whether a resource is in a namespace, goes with it, and can be followed.
func countable(r apidiscoveryv2.APIResourceDiscovery) bool {
	return r.Scope == apidiscoveryv2.ScopeNamespace && deletable(r) && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
}

// follow counts what the server has of the group versions, and nothing else, until the context
// ends.
func (c *census) follow(ctx context.Context, s *server) {
	now := s.state.Load()
	if now.err != nil {
		return // what is counted goes on when it is back
	}
	wanted := map[schema.GroupVersionResource]bool{}
	for _, gv := range *s.wanted.Load() {
		for _, r := range now.found[gv].Resources {
			if countable(r) {
				wanted[gv.WithResource(r.Resource)] = true
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[schema.GroupVersionResource]*tally{}
	}
	for gvr, t := range c.all {
		if !wanted[gvr] {
			t.end()
			delete(c.all, gvr)
			continue
		}
		t.forget(time.Now())
	}
	for gvr := range wanted {
		if c.all[gvr] != nil {
			continue
		}
		ctx, end := context.WithCancel(ctx)
		t := &tally{unseen: map[string]unseen{}, end: end}
		c.all[gvr] = t
		c.work.Go(func() {
			for ctx.Err() == nil {
				_ = c.take(ctx, s, gvr, t) // the server's condition says what is wrong
				pause := time.NewTimer(censusPause)
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
				pause.Stop()
			}
		})
	}
}

// stop waits for the counting, whose context has ended.
func (c *census) stop() { c.work.Wait() }

// take counts the objects of a resource, and follows them until that fails.
func (c *census) take(ctx context.Context, s *server, gvr schema.GroupVersionResource, t *tally) error {
	if err := s.state.Load().err; err != nil {
		return err
	}
	counts := map[string]int{}
	list := metav1.PartialObjectMetadataList{}
	for first := true; first || list.Continue != ""; first = false {
		query := url.Values{"limit": {fmt.Sprint(censusPage)}, "continue": {list.Continue}}
		list = metav1.PartialObjectMetadataList{}
		if err := s.read(ctx, gvr, query, "PartialObjectMetadataList", func(d *json.Decoder) error { return d.Decode(&list) }); err != nil {
			return err
		}
		for i := range list.Items {
			counts[list.Items[i].Namespace]++
		}
	}
	c.set(gvr, t, counts)
	query := url.Values{"watch": {"1"}, "resourceVersion": {list.ResourceVersion}}
	return s.read(ctx, gvr, query, "PartialObjectMetadata", func(d *json.Decoder) error {
		c.watch(t, time.Now())
		defer c.watch(t, time.Time{})
		for {
			var e struct {
				Type   watch.EventType
				Object metav1.PartialObjectMetadata
			}
			if err := d.Decode(&e); err != nil {
				return err
			}
			switch e.Type {
			case watch.Added:
				c.add(gvr, t, e.Object.Namespace, 1)
			case watch.Deleted:
				c.add(gvr, t, e.Object.Namespace, -1)
			case watch.Error:
				return errors.New("the watch has to begin anew")
			}
		}
	})
}

func (c *census) set(gvr schema.GroupVersionResource, t *tally, counts map[string]int) {
	c.mu.Lock()
	if c.all[gvr] != t { // it is no longer counted
		c.mu.Unlock()
		return
	}
	before := t.counts
	t.counts = maps.Clone(counts)
	c.mu.Unlock()
	for namespace, n := range counts {
		if more := n - before[namespace]; more != 0 {
			c.changed(namespace, gvr.GroupResource(), more)
		}
	}
	for namespace, n := range before { // a map that is replaced is not written to any more
		if counts[namespace] == 0 && n != 0 {
			c.changed(namespace, gvr.GroupResource(), -n)
		}
	}
}

func (c *census) add(gvr schema.GroupVersionResource, t *tally, namespace string, n int) {
	c.mu.Lock()
	if c.all[gvr] != t { // it is no longer counted
		c.mu.Unlock()
		return
	}
	if n > 0 {
		t.note(namespace, func(u *unseen) { u.all-- })
	}
	if t.counts[namespace] += n; t.counts[namespace] <= 0 {
		delete(t.counts, namespace)
	}
	c.mu.Unlock()
	c.changed(namespace, gvr.GroupResource(), n)
}

// count is how many objects of a resource there are in a namespace, in whichever version they
// were counted.
func (c *census) count(namespace string, resource schema.GroupResource) (n int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for gvr, t := range c.all {
		if gvr.GroupResource() == resource && t.counts != nil {
			return t.counts[namespace], true
		}
	}
	return 0, false
}

// read asks the server, as this one, for a resource in all namespaces, and reads its answer
// until a function has what it wants, or the server does not answer any more.
func (s *server) read(
	ctx context.Context, gvr schema.GroupVersionResource, query url.Values, as string, read func(*json.Decoder) error,
) error {
	at, err := s.resolve()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	h := &hop{lasts: true, end: end}
	s.hops.enter(h)
	defer s.hops.leave(h)
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	to := *at
	to.Path, to.RawQuery = to.Path+pathOf(gvr.GroupVersion())+"/"+gvr.Resource, query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), http.NoBody)
	if err != nil {
		return err
	}
	s.sign(r)
	r.Header.Set("Accept", fmt.Sprintf(metadataAs, as))
	response, err := s.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return apierrors.NewGenericServerResponse(response.StatusCode, strings.ToLower(r.Method), gvr.GroupResource(), "", "", 0, true)
	}
	return read(json.NewDecoder(response.Body))
}
