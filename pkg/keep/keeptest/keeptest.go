package keeptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

// Options say what a keeper under test keeps.
type Options[T any] struct {
	// ClusterScoped objects are in no namespace.
	ClusterScoped bool
	// Fill sets fields of an object besides its metadata, such as a spec: other ones for
	// every n, so that the test sees that they are kept. May be nil.
	Fill func(object *T, n int)
	// Break writes something that is no object where nothing is, as others may who write what
	// the keeper keeps. Nil: nobody can.
	Break func(t *testing.T, k keep.Keeper[T], key keep.Key)
	// Reopen returns a keeper of what another one keeps, as after a restart. Nil: what is
	// kept ends with the process.
	Reopen func(t *testing.T, k keep.Keeper[T]) keep.Keeper[T]
}

// Run holds a keeper to the contract of keep.Keeper. open returns an empty one for each test,
// which ends with the test.
//
//	func TestContract(t *testing.T) {
//		keeptest.Run(t, keeptest.Options[fleetv1.Machine]{}, func(t *testing.T) keep.Keeper[fleetv1.Machine] {
//			return &Mine{Dir: t.TempDir()}
//		})
//	}
func Run[T any, PT Object[T]](t *testing.T, o Options[T], open func(*testing.T) keep.Keeper[T]) {
	t.Helper()
	for name, test := range map[string]func(*contract[T, PT]){
		"Empty":             (*contract[T, PT]).empty,
		"PutAndGet":         (*contract[T, PT]).putAndGet,
		"PutChecks":         (*contract[T, PT]).putChecks,
		"RemoveChecks":      (*contract[T, PT]).removeChecks,
		"LostUpdates":       (*contract[T, PT]).lostUpdates,
		"Create":            (*contract[T, PT]).create,
		"Copies":            (*contract[T, PT]).copies,
		"Broken":            (*contract[T, PT]).broken,
		"Order":             (*contract[T, PT]).order,
		"Pages":             (*contract[T, PT]).pages,
		"Changes":           (*contract[T, PT]).changes,
		"ChangesOfRemoved":  (*contract[T, PT]).changesOfRemoved,
		"ChangesWhileMany":  (*contract[T, PT]).changesWhileMany,
		"UnknownVersions":   (*contract[T, PT]).unknownVersions,
		"Cancelled":         (*contract[T, PT]).cancelled,
		"Reopened":          (*contract[T, PT]).reopened,
		"NamesThatAreOdd":   (*contract[T, PT]).odd,
		"MetadataIsKept":    (*contract[T, PT]).metadata,
		"ListWhileWriting":  (*contract[T, PT]).listWhileWriting,
		"VersionsOfTheList": (*contract[T, PT]).versionsOfTheList,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			test(&contract[T, PT]{T: t, ctx: ctx, options: o, keeper: open(t)})
		})
	}
}

// contract is one test of a keeper.
type contract[T any, PT Object[T]] struct {
	*testing.T
	ctx     context.Context //nolint:containedctx // it ends with the test
	options Options[T]
	keeper  keep.Keeper[T]
}

// key is a key of the resource, in a namespace or in none.
func (c *contract[T, PT]) key(namespace, name string) keep.Key {
	if c.options.ClusterScoped {
		return keep.Key{Name: namespace + "." + name}
	}
	return keep.Key{Namespace: namespace, Name: name}
}

// object makes the nth object of a key.
func (c *contract[T, PT]) object(key keep.Key, n int) *T {
	o := PT(new(T))
	if c.options.Fill != nil {
		c.options.Fill(o, n)
	}
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	o.SetUID(types.UID(fmt.Sprintf("uid-of-%s", key)))
	o.SetGeneration(int64(n))
	return o
}

// must ends the test for an error.
func (c *contract[T, PT]) must(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

// put writes the nth object of a key, or ends the test.
func (c *contract[T, PT]) put(key keep.Key, n int, ifVersion int64) int64 {
	c.Helper()
	version, err := c.keeper.Put(c.ctx, c.object(key, n), ifVersion)
	c.must(fmt.Sprintf("put %s if it has version %d", key, ifVersion), err)
	if version <= ifVersion {
		c.Fatalf("put %s: its version was %d and is %d: versions must grow", key, ifVersion, version)
	}
	return version
}

func (c *contract[T, PT]) remove(key keep.Key, ifVersion int64) int64 {
	c.Helper()
	version, err := c.keeper.Remove(c.ctx, key, ifVersion)
	c.must(fmt.Sprintf("remove %s of version %d", key, ifVersion), err)
	if version <= ifVersion {
		c.Fatalf("remove %s: its version was %d, that of the removal is %d: versions must grow", key, ifVersion, version)
	}
	return version
}

func (c *contract[T, PT]) list(r keep.Range) keep.Page[T] {
	c.Helper()
	page, err := c.keeper.List(c.ctx, r)
	c.must(fmt.Sprintf("list %+v", r), err)
	if page.Version <= 0 {
		c.Fatalf("list %+v: the version is %d: want a positive one", r, page.Version)
	}
	return page
}

// since reads all changes after a version.
func (c *contract[T, PT]) since(version int64) (all []keep.Change[T], upTo int64) {
	c.Helper()
	for {
		b, err := c.keeper.Changes(c.ctx, version)
		c.must(fmt.Sprintf("changes since %d", version), err)
		last := version
		for _, change := range b.Changes {
			if change.Version <= last || change.Version > b.Version {
				c.Fatalf("changes since %d up to %d: version %d comes after %d: want them in order, each once",
					version, b.Version, change.Version, last)
			}
			last = change.Version
			if o := PT(change.Object); o != nil && (o.GetNamespace() != change.Key.Namespace || o.GetName() != change.Key.Name) {
				c.Fatalf("changes since %d: the object %s/%s has the key %s", version, o.GetNamespace(), o.GetName(), change.Key)
			}
		}
		if b.Version < version || b.More && b.Version == version {
			c.Fatalf("changes since %d: the version is %d: want it to grow", version, b.Version)
		}
		all, version = append(all, b.Changes...), b.Version
		if !b.More {
			return all, version
		}
	}
}

// same tells whether an object is the one that was put.
func (c *contract[T, PT]) same(what string, got, want *T) {
	c.Helper()
	a, b := clone[T, PT](got), clone[T, PT](want)
	for _, o := range []*T{a, b} {
		PT(o).SetResourceVersion("")
		PT(o).GetObjectKind().SetGroupVersionKind(PT(new(T)).GetObjectKind().GroupVersionKind())
	}
	if !equality.Semantic.DeepEqual(a, b) {
		c.Errorf("%s: got %+v, want %+v", what, a, b)
	}
}

// names are the keys of what was listed.
func (c *contract[T, PT]) names(items []keep.Item[T]) []string {
	all := []string{}
	for _, item := range items {
		all = append(all, keyOf[T, PT](item.Object).String())
	}
	return all
}

// is compares an error with what is wanted.
func (c *contract[T, PT]) is(what string, err, want error) {
	c.Helper()
	if !errors.Is(err, want) {
		c.Errorf("%s: the error is %v, want %q", what, err, want)
	}
}

// equal compares keys.
func (c *contract[T, PT]) equal(what string, got, want []string) {
	c.Helper()
	if !slices.Equal(got, want) {
		c.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// together runs a function in some goroutines.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
