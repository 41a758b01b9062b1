//go:build unix

package life

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// sight is an object as a client sees it.
type sight struct {
	name, value string
	version     int64
	// listed: what the object was before is not known.
	listed bool
}

// follower is a client that knows the flunders by a watch. When that ends it goes on where it was, and lists anew if
// that is too long ago.
type follower struct {
	where  string
	client dynamic.ResourceInterface

	mu      sync.Mutex
	last    int64 // the resource version up to which it has seen everything
	seen    []sight
	expired int   // how often it was too long ago
	wrong   error // what no server may do
}

// follow follows the flunders until the test ends.
func follow(t *testing.T, where string, config *rest.Config) *follower {
	t.Helper()
	f := &follower{where: where, client: flunders(t, config)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

func (f *follower) run(ctx context.Context) {
	for listed := false; ctx.Err() == nil; {
		var err error
		if listed {
			err = f.watch(ctx)
		} else {
			listed, err = f.list(ctx)
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			listed = false
			f.mu.Lock()
			f.expired++
			f.mu.Unlock()
		}
		_ = behind.Pause(ctx, 50*time.Millisecond) // other errors are those of servers that are away
	}
}

// list lists all, and tells whether it did.
func (f *follower) list(ctx context.Context) (bool, error) {
	list, err := f.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	version, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if version < f.last {
		f.wrong = errors.Join(f.wrong, fmt.Errorf("a list of resource version %d after %d", version, f.last))
	}
	for _, o := range list.Items {
		s := sighted(&o)
		if s.listed = true; s.version > version {
			f.wrong = errors.Join(f.wrong, fmt.Errorf("%v in a list of resource version %d", s, version))
		}
		f.seen = append(f.seen, s)
	}
	f.last = version
	return true, nil
}

// watch watches until the server ends it.
func (f *follower) watch(ctx context.Context) error {
	f.mu.Lock()
	from := strconv.FormatInt(f.last, 10)
	f.mu.Unlock()
	w, err := f.client.Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if e.Type == watch.Error || !ok {
			return apierrors.FromObject(e.Object)
		}
		f.see(e.Type, sighted(o))
	}
	return nil
}

// see takes in an event. Each is newer than the one before.
func (f *follower) see(kind watch.EventType, s sight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.version < f.last || s.version == f.last && kind != watch.Bookmark {
		f.wrong = errors.Join(f.wrong, fmt.Errorf("%s %v after resource version %d", kind, s, f.last))
	}
	f.last = s.version
	if kind == watch.Added || kind == watch.Modified {
		f.seen = append(f.seen, s)
	}
}

func sighted(o *unstructured.Unstructured) sight {
	version, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64) // 0 would be older than all
	value, _, _ := unstructured.NestedString(o.Object, "spec", "reference")
	return sight{name: o.GetName(), value: value, version: version}
}

// expiredSoFar is how often the watch could not go on.
func (f *follower) expiredSoFar() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.expired
}

// check waits until the client has seen all writes that were acknowledged: each as it was, in the order of the object,
// unless a list was between.
func (f *follower) check(t *testing.T, acknowledged map[string][]sight) {
	t.Helper()
	until(t, "the watch "+f.where+" has seen everything", func(context.Context) error { return f.missing(acknowledged) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wrong != nil {
		t.Errorf("the watch %s: %v", f.where, f.wrong)
	}
}

// missing is the first write of each object that was not seen.
func (f *follower) missing(acknowledged map[string][]sight) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string][]sight{}
	for _, s := range f.seen {
		seen[s.name] = append(seen[s.name], s)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(acknowledged)) {
		if err := inOrder(acknowledged[name], seen[name]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(errs) > 5 {
		errs = append(errs[:5], fmt.Errorf("and %d others", len(errs)-5))
	}
	return errors.Join(errs...)
}

// inOrder compares the writes of an object to what was seen of it.
func inOrder(made, seen []sight) error {
	for _, m := range made {
		for len(seen) > 0 && seen[0].version < m.version {
			seen = seen[1:]
		}
		switch {
		case len(seen) == 0:
			return fmt.Errorf("%v is not seen", m)
		case seen[0].listed && seen[0].version > m.version: // it was before the list
		case seen[0].version != m.version || seen[0].value != m.value:
			return fmt.Errorf("%v is not seen, but %v", m, seen[0])
		}
	}
	return nil
}
