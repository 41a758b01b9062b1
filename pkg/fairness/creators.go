package fairness

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sailplane-dev/sailplane/pkg/feed"
)

// creators knows who created the objects that are stored. Objects do not say it: what was
// created before the server started was created by nobody.
type creators struct {
	mu       sync.Mutex
	creating map[feed.UID]*creation
	of       map[feed.UID]string
	bytes    map[holder]int64 // of the objects that a user, or the accounts of a namespace, created
	swept    time.Time        // when creating was
}

// creation is a create that the feed has not shown yet.
type creation struct {
	user  string
	ended time.Time // zero: it runs
}

// patience is how long creators wait for the feed to show what was created. What is gone
// again when the feed comes back from a gap is not shown.
const patience = 5 * time.Minute

func newCreators() *creators {
	return &creators{
		creating: map[feed.UID]*creation{}, of: map[feed.UID]string{}, bytes: map[holder]int64{}, swept: time.Now(),
	}
}

// Handles implements admission.Interface.
func (*creators) Handles(o admission.Operation) bool { return o == admission.Create }

// Validate implements admission.ValidationInterface. It notes what the request creates: the
// object has its UID here, which the write does not tell, and its name may be that of
// another one.
func (*creators) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	c := callerOf(ctx)
	if c == nil || a.GetSubresource() != "" {
		return nil
	}
	if o, err := meta.Accessor(a.GetObject()); err == nil && o.GetUID() != "" {
		c.creates = feed.UIDOf(o.GetUID())
	}
	return nil
}

// begin notes who creates an object.
func (c *creators) begin(id feed.UID, user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creating[id] = &creation{user: user}
}

// end ends a create.
func (c *creators) end(id feed.UID, kept bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.creating[id]; !kept {
		delete(c.creating, id)
	} else if x != nil { // the feed has not shown it
		x.ended = now
	}
	if now.Sub(c.swept) > patience {
		c.swept = now
		c.sweepLocked(now.Add(-patience))
	}
}

// sweep takes out the creates that ended before a time, and that the feed should have
// shown.
func (c *creators) sweep(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked(before)
}

func (c *creators) sweepLocked(before time.Time) {
	for id, x := range c.creating {
		if !x.ended.IsZero() && x.ended.Before(before) {
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
	if x := c.creating[after.UID]; x != nil {
		delete(c.creating, after.UID)
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
