//go:build unix

package etcdserve

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// last is the object that ends a watch of these tests when it is created.
const last = "zz-last"

// change is what a watch says of an object.
type change struct {
	kind, name string
	version    int64
}

// unknown is the version of a change that nobody has told.
const unknown = 0

// changed is the change that has made an object what it is.
func changed(kind watch.EventType, o metav1.Object) change {
	version, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64) // unknown where it is none
	return change{string(kind), o.GetName(), version}
}

// equal compares changes, those to one object in their order. A version that is unknown is any.
func equal(made, seen []change) string {
	byName := func(all []change) map[string][]change {
		m := map[string][]change{}
		for _, c := range all {
			m[c.name] = append(m[c.name], c)
		}
		return m
	}
	return cmp.Diff(byName(made), byName(seen), cmp.Comparer(func(a, b change) bool {
		return a.kind == b.kind && a.name == b.name && (a.version == b.version || a.version == unknown || b.version == unknown)
	}))
}

// follower is a watch of the objects of a namespace, which goes on where it was when it is closed.
type follower struct {
	done    chan struct{}
	changes []change
	err     error
}

// follow watches from a resource version on, until it has seen the last object.
func follow(t *testing.T, c dynamic.ResourceInterface, version string) *follower {
	t.Helper()
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return c.Watch(ctx, o) },
	})
	must(t, err)
	f := &follower{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer w.Stop()
		f.err = f.read(w.ResultChan())
	}()
	return f
}

func (f *follower) read(events <-chan watch.Event) error {
	for e := range events {
		o, err := meta.Accessor(e.Object)
		if err != nil {
			return fmt.Errorf("%s: %v", e.Type, e.Object)
		}
		if e.Type == watch.Bookmark {
			continue
		}
		c := changed(e.Type, o)
		f.changes = append(f.changes, c)
		if c.name == last {
			return nil
		}
	}
	return fmt.Errorf("the watch ended after %d changes", len(f.changes))
}

// seen returns what the watch has seen when it has ended, the last object among it: each change once, and
// in the order of resource versions.
func (f *follower) seen(t *testing.T) []change {
	t.Helper()
	select {
	case <-f.done:
	case <-time.After(patience):
		t.Fatalf("a watch does not see %s within %v", last, patience)
	}
	must(t, f.err)
	for i, c := range f.changes[1:] {
		if c.version <= f.changes[i].version {
			t.Errorf("%v at %d comes after %v at %d", c, c.version, f.changes[i], f.changes[i].version)
		}
	}
	return f.changes
}

// replayed returns the resource versions that objects have after the changes, by name.
func replayed(versions map[string]string, changes []change) map[string]string {
	versions = maps.Clone(versions)
	for _, c := range changes {
		if versions[c.name] = strconv.FormatInt(c.version, 10); c.kind == string(watch.Deleted) {
			delete(versions, c.name)
		}
	}
	return versions
}

// listed returns the resource versions of the objects there, by name, and that of the list.
func listed(t *testing.T, c dynamic.ResourceInterface) (versions map[string]string, at string) {
	t.Helper()
	list, err := c.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	versions = map[string]string{}
	for _, o := range list.Items {
		versions[o.GetName()] = o.GetResourceVersion()
	}
	return versions, list.GetResourceVersion()
}

func configMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}
