package keeptest

import (
	"fmt"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// broken: what is no object is named, and in nobody's way.
func (c *contract[T, PT]) broken() {
	if c.options.Break == nil {
		c.Skip("nobody but the keeper can write what it keeps")
	}
	first, bad, last := c.key("ns", "a"), c.key("ns", "b"), c.key("ns", "c")
	c.put(first, 1, 0)
	c.put(last, 2, 0)
	before := c.list(keep.Range{}).Version
	c.options.Break(c.T, c.keeper, bad)

	page := c.list(keep.Range{})
	c.equal("a list", c.names(page.Items), []string{first.String(), bad.String(), last.String()})
	for _, item := range page.Items {
		c.isBroken("a list", item, bad)
	}
	item, err := c.keeper.Get(c.ctx, bad)
	c.must("get what is broken", err)
	c.isBroken("a get", item, bad)
	if good, err := c.keeper.Get(c.ctx, first); err != nil || good.Broken != nil {
		c.Errorf("get %s beside it: %v, %v", first, good.Broken, err)
	}
	changes, _ := c.since(before)
	if len(changes) != 1 || changes[0].Key != bad {
		c.Fatalf("the changes are %+v, want one of %s", changes, bad)
	}
	c.isBroken("a change", keep.Item[T]{Object: changes[0].Object, Version: changes[0].Version, Broken: changes[0].Broken}, bad)

	_, err = c.keeper.Put(c.ctx, c.object(bad, 1), 0)
	c.is("a create of what is there", err, keep.ErrConflict)
	_, err = c.keeper.Remove(c.ctx, bad, item.Version+1)
	c.is("a removal of another version", err, keep.ErrConflict)
	c.remove(bad, item.Version)
	c.equal("a list after the removal", c.names(c.list(keep.Range{}).Items), []string{first.String(), last.String()})
	c.put(bad, 1, 0)
}

// isBroken tells whether what was read is the one that is broken, and else that it is not.
func (c *contract[T, PT]) isBroken(what string, item keep.Item[T], bad keep.Key) {
	c.Helper()
	key := keyOf[T, PT](item.Object)
	if (key == bad) != (item.Broken != nil) || item.Version <= 0 {
		c.Errorf("%s: %s of version %d is broken: %v", what, key, item.Version, item.Broken)
	}
	if key == bad {
		o := PT(new(T))
		o.SetNamespace(bad.Namespace)
		o.SetName(bad.Name)
		c.same(fmt.Sprintf("%s of %s, which has only its name", what, key), item.Object, o)
	}
}
