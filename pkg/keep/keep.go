// Package keep is for storage of one's own: the objects of a resource that live in a table, in
// files, or behind somebody's API. An author implements [Keeper], five methods, and gives it to
// the option apis.Kept. Lists with selectors and pages, watches, 410, server-side apply and all
// else that clients expect of a stored resource is made of it.
//
// Package keeptest has the test that a Keeper has to pass, and one in memory to read.
package keep

import (
	"cmp"
	"context"
	"errors"
)

// The errors that a [Keeper] returns for what is no failure. Any other error means that the
// keeper cannot answer now: clients get 503 Service Unavailable with its text.
var (
	// ErrNotFound says that there is no object of the name.
	ErrNotFound = errors.New("no such object")
	// ErrConflict says that the object has another version than the caller thinks.
	ErrConflict = errors.New("the object has another version")
	// ErrExpired says that the keeper cannot tell what changed since a version: it is too old,
	// or it is none of this keeper's. Clients get 410 Gone, and list again.
	ErrExpired = errors.New("what changed since the version is not known")
)

// Key names an object.
type Key struct {
	// Namespace is empty for objects that are in none.
	Namespace string
	Name      string
}

// String is "namespace/name", or "name" for an object that is in no namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys as their strings are, byte by byte: that is how Kubernetes orders lists.
// It is not the order of namespaces and then names: "a-b/x" comes before "a/x".
func (k Key) Compare(other Key) int { return cmp.Compare(k.String(), other.String()) }

// Keeper keeps the objects of one resource, of type T. Its methods are called from many
// goroutines. They should return soon after the context ends; after 10 seconds, or a minute for a
// list without a limit, nobody waits.
//
// # Versions
//
// Each write gives the object a new version, and a removal has one too. Versions are positive
// integers that grow over the whole resource, over restarts as well: when a reader has seen a
// version, nothing with a lower one may appear later. Clients see them as
// metadata.resourceVersion, and compare them
// (https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5504-comparable-resource-version).
// A keeper that may lose what it kept, or its count, should begin with a number that grows with
// time, such as microseconds since 1970.
//
// # Objects
//
// An object is kept whole, metadata included, but for metadata.resourceVersion. What is given
// to Put belongs to the keeper, and what it returns belongs to the caller, who may change it.
//
// Where others write what is kept, there may be something that is no object. It has a key and a
// version, and is returned with the reason, Broken, beside a name. Clients are not shown it in lists
// and watches, where it is as if it were removed; a get says why, and it can be deleted.
type Keeper[T any] interface {
	// Get returns an object, or [ErrNotFound].
	Get(ctx context.Context, key Key) (Item[T], error)
	// List returns objects in the order of [Key.Compare], and the version of the whole, all
	// as they were at one time.
	List(ctx context.Context, r Range) (Page[T], error)
	// Put keeps an object and returns its new version, if what is there has the version
	// ifVersion; 0: if nothing is there. If not, it returns [ErrConflict], or [ErrNotFound]
	// when nothing is there that should be. Between this check and the write nobody else may
	// write the object.
	Put(ctx context.Context, object *T, ifVersion int64) (version int64, err error)
	// Remove removes an object that has the version ifVersion, and returns the version of
	// the removal. If not, it returns [ErrConflict] or [ErrNotFound].
	Remove(ctx context.Context, key Key, ifVersion int64) (version int64, err error)
	// Changes returns what changed after a version, oldest first, or [ErrExpired]. It does
	// not wait for changes: it is called again and again while somebody watches.
	Changes(ctx context.Context, since int64) (Batch[T], error)
}

// Prompt is a [Keeper] whose Get may need no deadline.
type Prompt interface {
	// GetsAtOnce tells whether Get comes back at once now, whatever its context says: from memory,
	// or from a database in the process. It is called by the goroutine of the request then, and
	// not by one that is left alone when it is late: handing over is a good part of what a get costs.
	GetsAtOnce() bool
}

// Warner is a [Keeper] that may know of trouble although its calls succeed.
type Warner interface {
	// Warning returns what is wrong with what is kept, nil if nothing is: a file, say, that cannot be
	// read, in whose place its last good state is returned. It is called after other calls, by several
	// goroutines at once, and does not wait for anything.
	Warning() error
}

// Item is an object at a version.
type Item[T any] struct {
	Object  *T
	Version int64
	// Broken is why what is kept is no object. Object has nothing but its namespace and name then.
	Broken error
}

// Range says which objects are listed.
type Range struct {
	// Namespace is empty for all namespaces, and for objects that are in none.
	Namespace string
	// After leaves out all keys up to this one. Its zero value leaves out none.
	After Key
	// Limit is how many objects are wanted at most. 0: all.
	Limit int
}

// Page is what a list returns.
type Page[T any] struct {
	Items []Item[T]
	// Version is that of the whole resource, whatever was listed: a positive number, no less
	// than the version of any change so far, and less than that of any to come.
	Version int64
	// More says that the limit left some out.
	More bool
}

// Batch is what changed, or the first part of it.
type Batch[T any] struct {
	// Changes are in the order of their versions. A change that a later one replaced may be
	// left out, a removal may not.
	Changes []Change[T]
	// Version is the one up to which these are all changes. Without More, it is that of the
	// whole resource, as in a Page.
	Version int64
	// More says that there are changes after Version already.
	More bool
}

// Change is an object that was put or removed.
type Change[T any] struct {
	Key     Key
	Version int64
	// Object is nil if it was removed.
	Object *T
	// Broken is as in an Item.
	Broken error
}
