package feed

import (
	"crypto/sha256"
	"hash/fnv"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is the metadata of one stored object. It never changes; a write makes
// a new one.
type Object struct {
	// Type is shared by all objects of a resource that are stored alike.
	Type *Type
	// Namespace is empty for cluster-scoped objects.
	Namespace, Name string
	UID             UID
	// Revision is the storage's revision of the write: the resource version.
	Revision int64
	// Deleting: metadata.deletionTimestamp is set.
	Deleting bool
	// Foreground and Orphan: metadata.finalizers has that finalizer of the garbage
	// collector.
	Foreground, Orphan bool

	owners []Owner
	bytes  int64 // of key and value as they are stored
}

// Type is what a resource's objects have in common.
type Type struct {
	// Resource is the group and plural name in the key.
	Resource schema.GroupResource
	// Kind is the kind of the stored value, in its stored version.
	Kind schema.GroupVersionKind
}

// UID is a metadata.uid as the 16 bytes of its UUID.
type UID [16]byte

// UIDOf makes a UID of any text: text that is no UUID in its usual form, which a
// user may put into an owner reference, is hashed.
func UIDOf(id types.UID) UID {
	if u, err := uuid.Parse(string(id)); err == nil && u.String() == string(id) {
		return UID(u)
	}
	sum := sha256.Sum256([]byte(id))
	return UID(sum[:16])
}

// Owner is one owner reference.
type Owner struct {
	UID UID
	// Blocks is blockOwnerDeletion: the owner's foreground deletion waits.
	Blocks bool

	identity uint64
}

// Is tells whether the reference names the object: by UID, group, kind and name.
func (w Owner) Is(o *Object) bool {
	return o != nil && w.UID == o.UID && w.identity == identityOf(o.Type.Kind.Group, o.Type.Kind.Kind, o.Name)
}

// identityOf is a hash of the other fields of an owner reference, besides the UID.
func identityOf(group, kind, name string) uint64 {
	h := fnv.New64a()
	for _, s := range []string{group, kind, name} {
		_, _ = h.Write([]byte(s)) // Write returns no error
		_, _ = h.Write([]byte{'/'})
	}
	return h.Sum64()
}

// Owners are the object's owner references. Do not modify.
func (o *Object) Owners() []Owner { return o.owners }

// Bytes is the size of the key and the value, as they are stored.
func (o *Object) Bytes() int64 { return o.bytes }

// Owned tells whether the object has owners.
func (o *Object) Owned() bool { return len(o.owners) > 0 }

// OwnedBy tells whether the object has the owner, and whether it blocks the
// owner's foreground deletion.
func (o *Object) OwnedBy(owner UID) (owned, blocks bool) {
	for _, w := range o.owners {
		if w.UID == owner {
			owned, blocks = true, blocks || w.Blocks
		}
	}
	return owned, blocks
}
