package feed

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// index finds objects. Its methods need the feed's lock.
type index struct {
	objects    map[string]*Object // by place
	uids       map[UID]*Object
	dependents map[UID][]*Object                         // by owner
	counts     map[string]map[schema.GroupResource]Total // by namespace
	bytes      map[string]int64                          // by namespace
	totals     map[schema.GroupResource]Total
}

func newIndex() index {
	return index{
		objects:    map[string]*Object{},
		uids:       map[UID]*Object{},
		dependents: map[UID][]*Object{},
		counts:     map[string]map[schema.GroupResource]Total{},
		bytes:      map[string]int64{},
		totals:     map[schema.GroupResource]Total{},
	}
}

// replace puts an object, or nothing, in a place and returns the previous one.
func (x *index) replace(place string, after *Object) (before *Object) {
	before = x.objects[place]
	if before != nil {
		x.unlink(before)
		x.count(before, -1)
		if x.uids[before.UID] == before {
			delete(x.uids, before.UID)
		}
	}
	if after == nil {
		delete(x.objects, place)
		return before
	}
	x.objects[place] = after
	x.uids[after.UID] = after
	x.count(after, 1)
	x.link(after)
	return before
}

func (x *index) count(o *Object, by int) {
	r := o.Type.Resource
	total := x.totals[r].plus(o, by)
	x.totals[r] = total
	if total.Objects == 0 {
		delete(x.totals, r)
	}
	byResource := x.counts[o.Namespace]
	if byResource == nil {
		byResource = map[schema.GroupResource]Total{}
		x.counts[o.Namespace] = byResource
	}
	x.bytes[o.Namespace] += int64(by) * o.bytes
	if byResource[r] = byResource[r].plus(o, by); byResource[r].Objects > 0 {
		return
	}
	if delete(byResource, r); len(byResource) == 0 {
		delete(x.counts, o.Namespace)
		delete(x.bytes, o.Namespace)
	}
}

func (x *index) link(o *Object) {
	for _, w := range o.owners {
		x.dependents[w.UID] = append(x.dependents[w.UID], o)
	}
}

func (x *index) unlink(o *Object) {
	for _, w := range o.owners {
		all := x.dependents[w.UID]
		last := len(all) - 1
		if last == 0 {
			delete(x.dependents, w.UID)
			continue
		}
		all[slices.Index(all, o)] = all[last]
		all[last] = nil
		x.dependents[w.UID] = all[:last]
	}
}

// ByUID is the object with the UID, or nil.
func (f *Feed) ByUID(id UID) *Object {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.index.uids[id]
}

// Dependents are the objects that have the owner.
func (f *Feed) Dependents(owner UID) []*Object {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clone(f.index.dependents[owner])
}

// Blocked tells whether a dependent blocks the owner's foreground deletion. A
// dependent in another namespace does not: for it the owner does not exist.
func (f *Feed) Blocked(owner UID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	o := f.index.uids[owner]
	return slices.ContainsFunc(f.index.dependents[owner], func(d *Object) bool {
		_, blocks := d.OwnedBy(owner)
		return blocks && (o == nil || o.Namespace == "" || o.Namespace == d.Namespace)
	})
}

// Counts are the objects in a namespace by resource; without a namespace, the
// cluster-scoped ones.
func (f *Feed) Counts(namespace string) map[schema.GroupResource]Total {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return maps.Clone(f.index.counts[namespace])
}

// Count is the number of objects of a resource in a namespace.
func (f *Feed) Count(namespace string, resource schema.GroupResource) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.index.counts[namespace][resource].Objects
}

// Bytes are those of all objects in a namespace, as in [Total].
func (f *Feed) Bytes(namespace string) int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.index.bytes[namespace]
}

// At is the object with the key in the storage, or nil.
func (f *Feed) At(key string) *Object {
	plane, place := f.space.Place(key)
	if plane != f.space.Plane {
		return nil
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.index.objects[place]
}

// Total is what a plane stores of a resource.
type Total struct {
	Objects int
	// Bytes are those of keys and values as they are stored, without history. Values
	// that cannot be decrypted are not counted.
	Bytes int64
}

// plus adds an object as often as by says.
func (t Total) plus(o *Object, by int) Total {
	return Total{t.Objects + by, t.Bytes + int64(by)*o.bytes}
}

// Totals are those of all resources that have objects.
func (f *Feed) Totals() map[schema.GroupResource]Total {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return maps.Clone(f.index.totals)
}

// Len is the number of objects.
func (f *Feed) Len() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.index.objects)
}

// All are the objects, in no order. The feed stands still meanwhile: stop soon.
func (f *Feed) All() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		f.mu.RLock()
		defer f.mu.RUnlock()
		for _, o := range f.index.objects {
			if !yield(o) {
				return
			}
		}
	}
}
