package keeptest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

func (c *contract[T, PT]) empty() {
	if page := c.list(keep.Range{}); len(page.Items) > 0 || page.More {
		c.Errorf("an empty keeper lists %d objects, more: %v", len(page.Items), page.More)
	}
	_, err := c.keeper.Get(c.ctx, c.key("a", "x"))
	c.is("get what is not there", err, keep.ErrNotFound)
	version := c.list(keep.Range{}).Version
	if changes, upTo := c.since(version); len(changes) > 0 || upTo != version {
		c.Errorf("nothing was written, and since %d there are %d changes up to %d", version, len(changes), upTo)
	}
}

func (c *contract[T, PT]) putAndGet() {
	key := c.key("a", "x")
	version := int64(0)
	for n := 1; n < 4; n++ {
		version = c.put(key, n, version)
		got, err := c.keeper.Get(c.ctx, key)
		c.must("get", err)
		c.same("what was put", got.Object, c.object(key, n))
		if got.Version != version {
			c.Errorf("put returned version %d, get %d", version, got.Version)
		}
	}
	other := c.put(c.key("b", "y"), 1, 0)
	if other <= version {
		c.Errorf("version %d was followed by version %d of another object: they must grow over the whole resource", version, other)
	}
	if removed := c.remove(key, version); removed <= other {
		c.Errorf("version %d was followed by the removal of another object with version %d", other, removed)
	}
	_, err := c.keeper.Get(c.ctx, key)
	c.is("get what was removed", err, keep.ErrNotFound)
}

func (c *contract[T, PT]) putChecks() {
	key := c.key("a", "x")
	_, err := c.keeper.Put(c.ctx, c.object(key, 1), 7)
	c.is("put with a version where nothing is", err, keep.ErrNotFound)
	first := c.put(key, 1, 0)
	_, err = c.keeper.Put(c.ctx, c.object(key, 2), 0)
	c.is("put with version 0 where something is", err, keep.ErrConflict)
	second := c.put(key, 2, first)
	before := c.list(keep.Range{}).Version
	for _, wrong := range []int64{first, second + 1} {
		_, err = c.keeper.Put(c.ctx, c.object(key, 3), wrong)
		c.is("put with a wrong version", err, keep.ErrConflict)
	}
	got, err := c.keeper.Get(c.ctx, key)
	c.must("get", err)
	c.same("what refused puts left", got.Object, c.object(key, 2))
	if changes, _ := c.since(before); got.Version != second || len(changes) > 0 {
		c.Errorf("refused puts changed version %d to %d, and made %d changes", second, got.Version, len(changes))
	}
}

func (c *contract[T, PT]) removeChecks() {
	key := c.key("a", "x")
	_, err := c.keeper.Remove(c.ctx, key, 7)
	c.is("remove what is not there", err, keep.ErrNotFound)
	first := c.put(key, 1, 0)
	second := c.put(key, 2, first)
	for _, wrong := range []int64{first, second + 1, 0} {
		_, err = c.keeper.Remove(c.ctx, key, wrong)
		c.is("remove with a wrong version", err, keep.ErrConflict)
	}
	if _, err := c.keeper.Get(c.ctx, key); err != nil {
		c.Errorf("refused removals removed it: %v", err)
	}
	c.remove(key, second)
	_, err = c.keeper.Remove(c.ctx, key, second)
	c.is("remove what was removed", err, keep.ErrNotFound)
	if again := c.put(key, 3, 0); again <= second {
		c.Errorf("an object of version %d was removed, and a new one of its name has version %d", second, again)
	}
}

// lostUpdates: each of many writers adds 1, and nothing is lost.
func (c *contract[T, PT]) lostUpdates() {
	key := c.key("a", "x")
	c.put(key, 0, 0)
	const writers, updates = 8, 10
	together(writers, func(int) {
		for done := 0; done < updates && c.ctx.Err() == nil; {
			now, err := c.keeper.Get(c.ctx, key)
			if err != nil {
				c.Errorf("get while others write: %v", err)
				return
			}
			PT(now.Object).SetGeneration(PT(now.Object).GetGeneration() + 1)
			switch _, err := c.keeper.Put(c.ctx, now.Object, now.Version); {
			case err == nil:
				done++
			case !errors.Is(err, keep.ErrConflict):
				c.Errorf("put while others write: %v, want nil or %v", err, keep.ErrConflict)
				return
			}
		}
	})
	got, err := c.keeper.Get(c.ctx, key)
	c.must("get", err)
	if n := PT(got.Object).GetGeneration(); n != writers*updates {
		c.Errorf("of %d updates that were acknowledged %d are there: the version must be compared in the write itself", writers*updates, n)
	}
}

// create: of many who create one object, one does.
func (c *contract[T, PT]) create() {
	key := c.key("a", "x")
	var created atomic.Int64
	together(8, func(n int) {
		switch _, err := c.keeper.Put(c.ctx, c.object(key, n), 0); {
		case err == nil:
			created.Add(1)
		case !errors.Is(err, keep.ErrConflict):
			c.Errorf("create while others do: %v, want nil or %v", err, keep.ErrConflict)
		}
	})
	if n := created.Load(); n != 1 {
		c.Errorf("%d created the same object", n)
	}
}

// copies: who changes what was returned changes nothing.
func (c *contract[T, PT]) copies() {
	key := c.key("a", "x")
	before := c.list(keep.Range{}).Version
	put := c.object(key, 1)
	PT(put).SetLabels(map[string]string{"a": "b"})
	_, err := c.keeper.Put(c.ctx, put, 0)
	c.must("put", err)
	spoil := func(o *T) { PT(o).GetLabels()["a"] = "spoiled" }
	got, err := c.keeper.Get(c.ctx, key)
	c.must("get", err)
	spoil(got.Object)
	spoil(c.list(keep.Range{}).Items[0].Object)
	changes, _ := c.since(before)
	spoil(changes[0].Object)
	changes, _ = c.since(before)
	got, err = c.keeper.Get(c.ctx, key)
	c.must("get", err)
	for what, o := range map[string]*T{"get": got.Object, "list": c.list(keep.Range{}).Items[0].Object, "changes": changes[0].Object} {
		if label := PT(o).GetLabels()["a"]; label != "b" {
			c.Errorf("%s: a reader changed what is kept: return copies", what)
		}
	}
}

// cancelled: no call outlasts its context for long, and those that nobody wants write nothing.
func (c *contract[T, PT]) cancelled() {
	key := c.key("a", "x")
	version := c.put(key, 1, 0)
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := c.keeper.Put(ctx, c.object(key, 2), version); err == nil {
			c.Errorf("a put whose context had ended was acknowledged")
		}
		_, _ = c.keeper.Get(ctx, key)
		_, _ = c.keeper.List(ctx, keep.Range{})
		_, _ = c.keeper.Changes(ctx, version)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		c.Fatalf("calls whose context had ended do not return in %v", patience)
	}
}

// metadata: all of it is kept, managed fields too.
func (c *contract[T, PT]) metadata() {
	key := c.key("a", "x")
	full := func() *T {
		o := PT(c.object(key, 1))
		now := metav1.NewTime(time.Unix(1700000000, 0))
		o.SetLabels(map[string]string{"example.com/a": "b", "c": ""})
		o.SetAnnotations(map[string]string{"note": "\"quoted\"\n: ü \\ '"})
		o.SetCreationTimestamp(now)
		o.SetDeletionTimestamp(&now)
		o.SetDeletionGracePeriodSeconds(new(int64(0)))
		o.SetFinalizers([]string{"example.com/f"})
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}})
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: "m", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:c":{},"f:b":{}}},"f:a":{}}`),
		}})
		return o
	}
	_, err := c.keeper.Put(c.ctx, full(), 0)
	c.must("put", err)
	got, err := c.keeper.Get(c.ctx, key)
	c.must("get", err)
	c.same("all metadata", got.Object, full())
}
