package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// object is what the model knows of one object.
type object struct {
	kind, name string
	uid        types.UID
	owners     []*object
	deleted    bool // by the client, with policy Background or Foreground
	orphaned   bool // the same, with Orphan
}

func (o *object) String() string { return o.kind + "/" + o.name }

// model is one namespace as a client knows it, who is the only one to write
// there. It does only what has one outcome, whenever the collector comes by.
type model struct {
	namespace string
	random    *rand.Rand
	objects   []*object
	made      int
}

// doomed are the objects that are or will be deleted: those that were, and
// those that have owners, all of whom are doomed or forgotten. A cycle that
// nobody deleted stays.
func (m *model) doomed() map[*object]bool {
	all := map[*object]bool{}
	for _, o := range m.objects {
		all[o] = o.deleted || o.orphaned
	}
	for changed := true; changed; {
		changed = false
		for _, o := range m.objects {
			lives := func(w *object) bool { doomed, known := all[w]; return known && !doomed }
			if !all[o] && len(o.owners) > 0 && !slices.ContainsFunc(o.owners, lives) {
				all[o], changed = true, true
			}
		}
	}
	return all
}

// alive are the objects that stay, in the order in which they were made.
func (m *model) alive() []*object {
	doomed := m.doomed()
	return slices.DeleteFunc(slices.Clone(m.objects), func(o *object) bool { return doomed[o] })
}

// forget drops what nobody alive refers to any more.
func (m *model) forget() {
	used := map[*object]bool{}
	for _, o := range m.alive() {
		used[o] = true
		for _, w := range o.owners {
			used[w] = true
		}
	}
	m.objects = slices.DeleteFunc(m.objects, func(o *object) bool { return !used[o] })
}

// owners picks up to three owners. One that was orphaned is none of them:
// whether a dependent comes before the collector is done with it is luck.
func (m *model) owners() []*object {
	var all []*object
	for range m.random.IntN(4) {
		if len(m.objects) == 0 {
			break
		}
		o := m.objects[m.random.IntN(len(m.objects))]
		if !o.orphaned && !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

// next makes up an object. Objects of a few kinds own each other.
func (m *model) next() *object {
	m.made++
	kinds := []string{"ConfigMap", "Secret", "Gadget"}
	return &object{kind: kinds[m.random.IntN(len(kinds))], name: fmt.Sprint("o-", m.made), owners: m.owners()}
}

// policy picks how to delete an object. It is orphaned only while every owner
// of its dependents lives: of one that is gone, the collector may have taken the
// reference off already, or may not.
func (m *model) policy(o *object) metav1.DeletionPropagation {
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}
	doomed := m.doomed()
	certain := !slices.ContainsFunc(m.objects, func(d *object) bool {
		return !doomed[d] && slices.Contains(d.owners, o) && slices.ContainsFunc(d.owners, func(w *object) bool { gone, known := doomed[w]; return gone || !known })
	})
	if certain {
		policies = append(policies, metav1.DeletePropagationOrphan)
	}
	return policies[m.random.IntN(len(policies))]
}

// remove notes that an object was deleted.
func (m *model) remove(o *object, policy metav1.DeletionPropagation) {
	if policy != metav1.DeletePropagationOrphan {
		o.deleted = true
		return
	}
	doomed := m.doomed()
	o.orphaned = true
	for _, d := range m.objects {
		if !doomed[d] {
			d.owners = slices.DeleteFunc(slices.Clone(d.owners), func(w *object) bool { return w == o })
		}
	}
}

// references are an object's owners as the API has them.
func (o *object) references(random *rand.Rand) []metav1.OwnerReference {
	refs := []metav1.OwnerReference{}
	for _, w := range o.owners {
		blocks := random.IntN(2) == 0
		version := "v1"
		if w.kind == "Gadget" {
			version = "example.com/v1"
		}
		refs = append(refs, metav1.OwnerReference{APIVersion: version, Kind: w.kind, Name: w.name, UID: w.uid, BlockOwnerDeletion: &blocks})
	}
	return refs
}
