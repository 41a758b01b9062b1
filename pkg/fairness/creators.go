package fairness

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
)

// creators knows who created the objects that are stored. Objects do not say it: what was
// created before the server started was created by nobody.
type creators struct {
	mu       sync.Mutex
	creating map[identity]*creation
	of       map[feed.UID]string
	bytes    map[holder]int64 // of the objects that a user, or the accounts of a namespace, created
	swept    time.Time        // when creating was
}

// identity is that of an object before it has a UID.
type identity struct {
	resource        schema.GroupResource
	namespace, name string
}

// creation is a create that the feed has not shown yet.
type creation struct {
	user    string
	running int       // requests that want to create the object
	ended   time.Time // when the last one that did ended; zero: none has
}

// patience is how long creators wait for the feed to show what was created. What is gone
// again when the feed comes back from a gap is not shown.
const patience = 5 * time.Minute

func newCreators() *creators {
	return &creators{
		creating: map[identity]*creation{}, of: map[feed.UID]string{}, bytes: map[holder]int64{}, swept: time.Now(),
	}
}

// begin notes who creates an object. Of several at the same time the first one does.
func (c *creators) begin(p controlplane.Write, user string) *creation {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := identity{p.Resource, p.Namespace, p.Name}
	x := c.creating[id]
	if x == nil || x.running == 0 {
		x = &creation{user: user}
		c.creating[id] = x
	}
	x.running++
	return x
}

// end ends a request that wanted to create an object.
func (c *creators) end(p controlplane.Write, x *creation, kept bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.running--; kept {
		x.ended = now
	}
	id := identity{p.Resource, p.Namespace, p.Name}
	if x.running == 0 && x.ended.IsZero() && c.creating[id] == x {
		delete(c.creating, id)
	}
	if now.Sub(c.swept) > patience {
		c.swept = now
		c.sweepLocked(now.Add(-patience))
	}
}

// sweep takes out the creates that ended before a time, and that the feed should have
// shown.
func (c *creators) sweep(ended time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked(ended)
}

func (c *creators) sweepLocked(ended time.Time) {
	for id, x := range c.creating {
		if x.running == 0 && x.ended.Before(ended) {
			delete(c.creating, id)
		}
	}
}

// changed takes in what the feed shows.
func (c *creators) changed(before, after *feed.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != nil && after != nil && before.UID == after.UID {
		if user, known := c.of[after.UID]; known {
			c.add(user, after.Bytes()-before.Bytes())
		}
		return
	}
	if before != nil {
		if user, known := c.of[before.UID]; known {
			delete(c.of, before.UID)
			c.add(user, -before.Bytes())
		}
	}
	if after == nil {
		return
	}
	id := identity{after.Type.Resource, after.Namespace, after.Name}
	if x := c.creating[id]; x != nil {
		delete(c.creating, id)
		c.of[after.UID] = x.user
		c.add(x.user, after.Bytes())
	}
}

func (c *creators) add(user string, bytes int64) {
	for _, h := range creations(user) {
		if c.bytes[h] += bytes; c.bytes[h] == 0 {
			delete(c.bytes, h)
		}
	}
}

// creator is who created an object; empty: nobody knows.
func (c *creators) creator(o *feed.Object) string {
	if o == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[o.UID]
}

// stored is how many bytes the objects take that a holder created.
func (c *creators) stored(h holder) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes[h]
}
