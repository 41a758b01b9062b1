package fairness

import (
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
)

// TestCreators: an object is that of who created it, however creates and the feed meet.
func TestCreators(t *testing.T) {
	t.Parallel()
	write := controlplane.Write{Name: "a"}
	object := func(uid byte) *feed.Object { return &feed.Object{Type: &feed.Type{}, Name: "a", UID: feed.UID{uid}} }
	for name, tc := range map[string]struct {
		reason string
		do     func(*creators)
		want   string // who created object 1
	}{
		"created": {"the feed shows it later", func(c *creators) {
			c.end(write, c.begin(write, "ann"), true)
			c.changed(nil, object(1))
		}, "ann"},
		"shown first": {"the feed may be faster than the answer", func(c *creators) {
			x := c.begin(write, "ann")
			c.changed(nil, object(1))
			c.end(write, x, true)
		}, "ann"},
		"refused": {"who did not create it is nobody", func(c *creators) {
			c.end(write, c.begin(write, "ann"), false)
			c.changed(nil, object(1))
		}, ""},
		"two": {"the refusal of the second takes nothing from the first", func(c *creators) {
			x := c.begin(write, "ann")
			y := c.begin(write, "ann")
			c.end(write, y, false)
			c.end(write, x, true)
			c.changed(nil, object(1))
		}, "ann"},
		"late refusal": {"it belongs to an object that is gone", func(c *creators) {
			x := c.begin(write, "ann")
			c.changed(nil, object(2))
			c.changed(object(2), nil)
			y := c.begin(write, "bob")
			c.end(write, x, false)
			c.end(write, y, true)
			c.changed(nil, object(1))
		}, "bob"},
		"not shown": {"it was deleted while the feed was away", func(c *creators) {
			c.end(write, c.begin(write, "ann"), true)
			c.sweep(time.Now().Add(time.Hour))
			c.changed(nil, object(1))
		}, ""},
		"running": {"only what ended is swept", func(c *creators) {
			x := c.begin(write, "ann")
			c.sweep(time.Now().Add(time.Hour))
			c.changed(nil, object(1))
			c.end(write, x, true)
		}, "ann"},
		"replaced": {"another object has the name", func(c *creators) {
			c.end(write, c.begin(write, "ann"), true)
			c.changed(nil, object(2))
			c.changed(object(2), object(1))
		}, ""},
		"updated": {"it is the same object", func(c *creators) {
			c.end(write, c.begin(write, "ann"), true)
			c.changed(nil, object(1))
			c.changed(object(1), object(1))
		}, "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCreators()
			tc.do(c)
			if got := c.creator(object(1)); got != tc.want {
				t.Errorf("%s: it was created by %q, want %q", tc.reason, got, tc.want)
			}
			if len(c.creating) > 0 {
				t.Errorf("%s: a create is kept", tc.reason)
			}
			c.changed(object(1), nil)
			if len(c.of) > 0 || len(c.bytes) > 0 {
				t.Errorf("%s: an object that is gone is kept", tc.reason)
			}
		})
	}
}
