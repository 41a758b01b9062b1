package fairness

import (
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/feed"
)

// TestCreators: an object is that of who created it, however creates and the feed meet.
func TestCreators(t *testing.T) {
	t.Parallel()
	one, two := feed.UID{1}, feed.UID{2}
	object := func(id feed.UID) *feed.Object { return &feed.Object{UID: id} }
	for name, tc := range map[string]struct {
		reason string
		do     func(*creators)
		want   string // who created object one
	}{
		"created": {"the feed shows it later", func(c *creators) {
			c.begin(one, "ann")
			c.end(one, true)
			c.changed(nil, object(one))
		}, "ann"},
		"shown first": {"the feed may be faster than the answer", func(c *creators) {
			c.begin(one, "ann")
			c.changed(nil, object(one))
			c.end(one, true)
		}, "ann"},
		"refused": {"it is not stored", func(c *creators) {
			c.begin(one, "ann")
			c.end(one, false)
		}, ""},
		"again": {"a second object of the name is refused", func(c *creators) {
			c.begin(one, "ann")
			c.end(one, true)
			c.begin(two, "bob")
			c.end(two, false)
			c.changed(nil, object(one))
		}, "ann"},
		"replaced": {"the feed was away while it was deleted and created again", func(c *creators) {
			c.begin(two, "bob")
			c.end(two, true)
			c.changed(nil, object(two))
			c.begin(one, "ann")
			c.end(one, true)
			c.changed(object(two), object(one))
		}, "ann"},
		"not shown": {"it was deleted while the feed was away", func(c *creators) {
			c.begin(one, "ann")
			c.end(one, true)
			c.sweep(time.Now().Add(time.Hour))
		}, ""},
		"running": {"only what ended is swept", func(c *creators) {
			c.begin(one, "ann")
			c.sweep(time.Now().Add(time.Hour))
			c.changed(nil, object(one))
			c.end(one, true)
		}, "ann"},
		"updated": {"it is the same object", func(c *creators) {
			c.begin(one, "ann")
			c.end(one, true)
			c.changed(nil, object(one))
			c.changed(object(one), object(one))
		}, "ann"},
		"old": {"it was there before", func(c *creators) {
			c.changed(nil, object(one))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCreators()
			tc.do(c)
			if got := c.creator(object(one)); got != tc.want {
				t.Errorf("%s: it was created by %q, want %q", tc.reason, got, tc.want)
			}
			if len(c.creating) > 0 {
				t.Errorf("%s: a create is kept", tc.reason)
			}
			c.changed(object(one), nil)
			if len(c.of) > 0 || len(c.bytes) > 0 {
				t.Errorf("%s: an object that is gone is kept", tc.reason)
			}
		})
	}
}
