package keeptest

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// some puts objects whose keys are in another order than their namespaces and names, and returns
// these in order.
func (c *contract[T, PT]) some() []keep.Key {
	var keys []keep.Key
	for _, namespace := range []string{"b", "a", "a-b", "aa", "a1"} {
		for _, name := range []string{"y", "x", "x.y", "x-1", "z"} {
			keys = append(keys, c.key(namespace, name))
		}
	}
	for i, key := range keys {
		c.put(key, i+1, 0)
	}
	slices.SortFunc(keys, keep.Key.Compare)
	return keys
}

// keyOf is the key of an object.
func keyOf[T any, PT Object[T]](o *T) keep.Key {
	return keep.Key{Namespace: PT(o).GetNamespace(), Name: PT(o).GetName()}
}

func strings(keys []keep.Key) []string {
	all := []string{}
	for _, key := range keys {
		all = append(all, key.String())
	}
	return all
}

func (c *contract[T, PT]) order() {
	keys := c.some()
	c.equal("all, in the order of keep.Key.Compare", c.names(c.list(keep.Range{}).Items), strings(keys))
	if c.options.ClusterScoped {
		return
	}
	for _, namespace := range []string{"a", "a-b", "none"} {
		want := slices.DeleteFunc(slices.Clone(keys), func(k keep.Key) bool { return k.Namespace != namespace })
		c.equal("those of namespace "+namespace, c.names(c.list(keep.Range{Namespace: namespace}).Items), strings(want))
	}
}

// pages: whatever the limit, the pages have everything once.
func (c *contract[T, PT]) pages() {
	keys := c.some()
	for _, limit := range []int{1, 2, 7, len(keys) - 1, len(keys), len(keys) + 1} {
		var got []string
		for r := (keep.Range{Limit: limit}); ; {
			page := c.list(r)
			if len(page.Items) > limit || page.More && len(page.Items) == 0 {
				c.Fatalf("limit %d: %d objects, more: %v", limit, len(page.Items), page.More)
			}
			got = append(got, c.names(page.Items)...)
			if len(got) > len(keys) || !page.More {
				break
			}
			r.After = keyOf[T, PT](page.Items[len(page.Items)-1].Object)
		}
		c.equal(fmt.Sprintf("pages of %d", limit), got, strings(keys))
	}
	// The object that a page ended with may be gone.
	after := keys[3]
	item, err := c.keeper.Get(c.ctx, after)
	c.must("get", err)
	c.remove(after, item.Version)
	c.equal("after a key that is gone", c.names(c.list(keep.Range{After: after}).Items), strings(keys[4:]))
	if c.options.ClusterScoped {
		return
	}
	in := slices.DeleteFunc(slices.Clone(keys), func(k keep.Key) bool { return k.Namespace != "a-b" || k == after })
	page := c.list(keep.Range{Namespace: "a-b", After: in[1], Limit: 1})
	c.equal("a page of a namespace", c.names(page.Items), strings(in[2:3]))
	if !page.More {
		c.Error("a page of a namespace: it does not say that there is more")
	}
}

// versionsOfTheList: the version of a list is where its changes begin.
func (c *contract[T, PT]) versionsOfTheList() {
	before := c.list(keep.Range{}).Version
	first := c.put(c.key("a", "x"), 1, 0)
	second := c.put(c.key("b", "y"), 1, 0)
	for _, r := range []keep.Range{{}, {Limit: 1}, {Namespace: "none"}, {After: c.key("z", "z")}} {
		if got := c.list(r).Version; got < second {
			c.Errorf("list %+v: its version is %d, though %d was written: it is that of the whole resource", r, got, second)
		}
	}
	if before >= first {
		c.Errorf("the version was %d before version %d was written", before, first)
	}
	for _, item := range c.list(keep.Range{}).Items {
		got, err := c.keeper.Get(c.ctx, keyOf[T, PT](item.Object))
		if err != nil || got.Version != item.Version {
			c.Errorf("get has version %d of what list has version %d of: %v", got.Version, item.Version, err)
		}
	}
}

func (c *contract[T, PT]) changes() {
	x, y := c.key("a", "x"), c.key("b", "y")
	before := c.list(keep.Range{}).Version
	first := c.put(x, 1, 0)
	second := c.put(y, 2, 0)
	changes, upTo := c.since(before)
	if len(changes) != 2 || changes[0].Version != first || changes[1].Version != second || upTo < second {
		c.Fatalf("since %d: got %+v up to %d, want versions %d and %d", before, changes, upTo, first, second)
	}
	c.same("the first change", changes[0].Object, c.object(x, 1))
	if changes, _ := c.since(first); len(changes) != 1 || changes[0].Key != y {
		c.Errorf("since %d: got %+v, want only %s", first, changes, y)
	}
	third := c.put(x, 3, first)
	changes, _ = c.since(before)
	last := changes[len(changes)-1]
	if last.Key != x || last.Version != third {
		c.Fatalf("since %d: the last change is version %d of %s, want %d of %s", before, last.Version, last.Key, third, x)
	}
	c.same("the last change", last.Object, c.object(x, 3))
}

func (c *contract[T, PT]) changesOfRemoved() {
	key := c.key("a", "x")
	before := c.list(keep.Range{}).Version
	removed := c.remove(key, c.put(key, 1, 0))
	changes, _ := c.since(before)
	want := keep.Change[T]{Key: key, Version: removed}
	if len(changes) == 0 || changes[len(changes)-1] != want {
		c.Fatalf("since %d: got %+v, want last that %s is gone in version %d", before, changes, key, removed)
	}
	c.put(key, 2, 0)
	changes, _ = c.since(before)
	gone := slices.IndexFunc(changes, func(change keep.Change[T]) bool { return change.Version == removed && change.Object == nil })
	if gone < 0 || gone == len(changes)-1 {
		c.Errorf("since %d: got %+v, want that %s went in version %d, and came back", before, changes, key, removed)
	}
}

// changesWhileMany: a reader that lists and follows the changes ends with what is there, whatever
// is written meanwhile.
func (c *contract[T, PT]) changesWhileMany() {
	page := c.list(keep.Range{})
	seen, version := map[keep.Key]int64{}, page.Version
	follow := func() {
		changes, upTo := c.since(version)
		for _, change := range changes {
			if change.Object == nil {
				delete(seen, change.Key)
			} else {
				seen[change.Key] = change.Version
			}
		}
		version = upTo
	}
	var writing atomic.Int64
	const writers = 4
	writing.Store(writers)
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(writers, func(i int) {
			defer writing.Add(-1)
			for n := range 20 {
				key := c.key("a", fmt.Sprintf("w%d-%d", i, n%3))
				now, err := c.keeper.Get(c.ctx, key)
				if err == nil && n%4 == 3 {
					_, err = c.keeper.Remove(c.ctx, key, now.Version)
				} else {
					_, err = c.keeper.Put(c.ctx, c.object(key, n), now.Version)
				}
				if err != nil {
					c.Errorf("write %s: %v", key, err)
				}
			}
		})
	}()
	defer func() { <-done }() // if the test ends early too
	for writing.Load() > 0 && c.ctx.Err() == nil {
		follow()
	}
	<-done
	follow()
	there := map[keep.Key]int64{}
	for _, item := range c.list(keep.Range{}).Items {
		there[keyOf[T, PT](item.Object)] = item.Version
	}
	for key, version := range there {
		if seen[key] != version {
			c.Errorf("%s has version %d, the changes say %d: a change was lost", key, version, seen[key])
		}
	}
	for key := range seen {
		if there[key] == 0 {
			c.Errorf("%s is gone, and no change says so", key)
		}
	}
}

// listWhileWriting: a list is of one version: nothing in it is newer.
func (c *contract[T, PT]) listWhileWriting() {
	var writing atomic.Bool
	writing.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer writing.Store(false)
		for n := range 50 {
			if _, err := c.keeper.Put(c.ctx, c.object(c.key("a", fmt.Sprintf("w%d", n)), n), 0); err != nil {
				c.Errorf("put: %v", err)
			}
		}
	}()
	defer func() { <-done }() // if the test ends early too
	for writing.Load() && c.ctx.Err() == nil {
		page := c.list(keep.Range{})
		for _, item := range page.Items {
			if item.Version > page.Version {
				c.Errorf("a list of version %d has version %d of an object", page.Version, item.Version)
			}
		}
	}
}

// unknownVersions: what the keeper cannot know is never answered with silence.
func (c *contract[T, PT]) unknownVersions() {
	c.put(c.key("a", "x"), 1, 0)
	version := c.list(keep.Range{}).Version
	for _, unknown := range []int64{version + 1, version + 1_000_000, math.MaxInt64} {
		_, err := c.keeper.Changes(c.ctx, unknown)
		c.is(fmt.Sprintf("changes since %d, where the version is %d", unknown, version), err, keep.ErrExpired)
	}
	_, err := c.keeper.Changes(c.ctx, 0)
	c.is("changes since 0, which is no version", err, keep.ErrExpired)
}

// odd: all names that Kubernetes allows can be kept, and no two are one.
func (c *contract[T, PT]) odd() {
	var keys []keep.Key
	for i, name := range []string{"x.yaml", "x.yaml.yaml", "x", "system:node:x", "X", "x_%25"} {
		keys = append(keys, c.key("a", name))
		c.put(keys[i], i+1, 0)
	}
	for i, key := range keys {
		got, err := c.keeper.Get(c.ctx, key)
		c.must("get "+key.String(), err)
		c.same("get "+key.String(), got.Object, c.object(key, i+1))
	}
	slices.SortFunc(keys, keep.Key.Compare)
	c.equal("odd names", c.names(c.list(keep.Range{}).Items), strings(keys))
}

// reopened: what was kept is there after a restart, and versions go on.
func (c *contract[T, PT]) reopened() {
	if c.options.Reopen == nil {
		c.Skip("what is kept ends with the process")
	}
	key := c.key("a", "x")
	gone := c.key("a", "gone")
	c.put(key, 1, 0)
	last := c.remove(gone, c.put(gone, 1, 0))
	c.keeper = c.options.Reopen(c.T, c.keeper)
	got, err := c.keeper.Get(c.ctx, key)
	c.must("get after a restart", err)
	c.same("what was put before a restart", got.Object, c.object(key, 1))
	c.equal("all after a restart", c.names(c.list(keep.Range{}).Items), []string{key.String()})
	if now := c.list(keep.Range{}).Version; now < last {
		c.Errorf("the version was %d, and is %d after a restart", last, now)
	}
	if next := c.put(c.key("a", "y"), 1, 0); next <= last {
		c.Errorf("the version was %d, and that of a write after a restart is %d", last, next)
	}
	// Whatever is known of the changes before the restart, none is missing.
	b, err := c.keeper.Changes(c.ctx, last)
	if err == nil && len(b.Changes) == 0 {
		c.Errorf("since %d: something was written after the restart, and no change says so", last)
	} else if err != nil {
		c.is("changes since before a restart", err, keep.ErrExpired)
	}
}
