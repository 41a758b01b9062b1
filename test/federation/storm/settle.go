package storm

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// settle waits until what was deleted is gone, and looks whether the rest is what it was
// written as.
func (r *run) settle(ctx context.Context, c *client) error {
	begun := time.Now()
	alive, _ := r.spaces.names()
	err := behind.Until(ctx, r.options.Settle, func(ctx context.Context) error { return r.gone(ctx, c, alive) })
	r.settled = time.Since(begun)
	if err != nil && ctx.Err() == nil {
		r.record.wrong("%v after all servers were there: %v", r.settled.Round(time.Millisecond), err)
	}
	for _, g := range r.groups {
		_, found, err := list(ctx, c, g)
		if err != nil {
			return err
		}
		r.compare(g, ours(found, alive))
		err = behind.Until(ctx, r.options.Settle, func(ctx context.Context) error { return g.same(ctx, c, alive) })
		if err != nil && ctx.Err() == nil {
			r.record.wrong("%s: %v", g.server, err)
		}
	}
	return nil
}

// gone returns what is left in namespaces that are deleted, and of them.
func (r *run) gone(ctx context.Context, c *client, alive map[string]bool) error {
	_, found, err := list(ctx, c, &group{server: own, version: "v1", resource: "namespaces"})
	if err != nil {
		return err
	}
	for name := range found {
		if name = strings.TrimPrefix(name, "/"); strings.HasPrefix(name, "space-") && !alive[name] {
			return r.why(ctx, c, name)
		}
	}
	for _, g := range r.groups {
		_, found, err := list(ctx, c, g)
		if err != nil {
			return err
		}
		for key := range found {
			if space, _, _ := strings.Cut(key, "/"); strings.HasPrefix(space, "space-") && !alive[space] {
				return fmt.Errorf("%s has %s, of a namespace that is gone", g.server, key)
			}
		}
	}
	return nil
}

// why says what a namespace says of itself.
func (r *run) why(ctx context.Context, c *client, name string) error {
	a := c.do(ctx, own, http.MethodGet, namespaces+"/"+name, nil)
	return fmt.Errorf("namespace %s is not gone: %v", name, a.body["status"])
}

// ours are the objects that clients made, in namespaces that are not deleted.
func ours(found map[string]string, alive map[string]bool) map[string]string {
	found = maps.Clone(found)
	maps.DeleteFunc(found, func(key, value string) bool {
		space, _, _ := strings.Cut(key, "/")
		return !alive[space] || value == absent // ConfigMap kube-root-ca.crt
	})
	return found
}

// compare looks whether the objects are those that clients know.
func (r *run) compare(g *group, found map[string]string) {
	known := map[string]*object{}
	for _, w := range g.writers {
		maps.Copy(known, w.objects)
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if o := known[key]; !o.space.isEnded() && !o.values[found[key]] {
			r.record.wrong("%s: lost: %s is %q, and was acknowledged as one of %v", g.server, key, found[key], o.values)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if known[key] == nil {
			r.record.wrong("%s: %s is there, and its deletion was acknowledged", g.server, key)
		}
	}
}

// same returns what a watch does not know, or knows and is not there.
func (g *group) same(ctx context.Context, c *client, alive map[string]bool) error {
	_, found, err := list(ctx, c, g)
	if err != nil {
		return err
	}
	is, seen := ours(found, alive), ours(g.watch.knows(), alive)
	for key := range is {
		if seen[key] != is[key] {
			return fmt.Errorf("a watch says of %s %q, and a list %q", key, seen[key], is[key])
		}
	}
	for key := range seen {
		if _, found := is[key]; !found {
			return fmt.Errorf("a watch says of %s %q, and it is not there", key, seen[key])
		}
	}
	return nil
}
