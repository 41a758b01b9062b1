package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// TestGarbageCollection holds the rules of
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/
func TestGarbageCollection(t *testing.T) {
	tests := map[string]func(*testing.T, *plane, string){
		"background":             collectBackground,
		"foreground":             collectForeground,
		"foreground elsewhere":   collectForegroundElsewhere,
		"foreground unblocked":   collectForegroundUnblocked,
		"orphan":                 collectOrphan,
		"absent owner":           collectAbsentOwner,
		"another UID":            collectAnotherUID,
		"another namespace":      collectAnotherNamespace,
		"two owners":             collectTwoOwners,
		"cycle":                  collectCycle,
		"cycle of deleted":       collectCycleOfDeleted,
		"cluster-scoped owner":   collectClusterScopedOwner,
		"namespaced owner above": collectNamespacedOwnerAbove,
		"unknown kind of owner":  collectUnknownKind,
		"added owner":            collectAddedOwner,
	}
	onEveryStorage(t, func(t *testing.T, p *plane) {
		i := 0
		for name, test := range tests {
			i++
			ns := fmt.Sprint("gc-", i)
			t.Run(name, func(t *testing.T) {
				p.create(t, "", "Namespace", ns)
				test(t, p, ns)
			})
		}
	})
}

func collectBackground(t *testing.T, p *plane, ns string) {
	root := p.create(t, ns, "Gadget", "root")
	middle := p.create(t, ns, "ConfigMap", "middle", owner(root, false))
	leaf := p.create(t, ns, "Secret", "leaf", owner(middle, false))
	other := p.create(t, ns, "Secret", "other")
	p.remove(t, root, background)
	if p.get(t, root) != nil {
		t.Error("the owner is gone at once")
	}
	p.untilGone(t, middle, leaf)
	p.stays(t, other)
}

func collectForeground(t *testing.T, p *plane, ns string) {
	root := p.create(t, ns, "ConfigMap", "root")
	held := p.create(t, ns, "Gadget", "held", owner(root, true))
	free := p.create(t, ns, "Gadget", "free", owner(root, false))
	leaf := p.create(t, ns, "Secret", "leaf", owner(held, true))
	p.patch(t, held, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	p.remove(t, root, foreground)
	p.untilGone(t, free, leaf)
	if got := p.get(t, root); got == nil || got.GetDeletionTimestamp() == nil {
		t.Fatal("the owner waits for a dependent that blocks it")
	}
	p.patch(t, held, `{"metadata": {"finalizers": null}}`)
	p.untilGone(t, held, root)
}

// collectForegroundElsewhere has a dependent in another namespace, which does not know
// the owner, hold nothing up.
func collectForegroundElsewhere(t *testing.T, p *plane, ns string) {
	root := p.create(t, ns, "ConfigMap", "root")
	elsewhere := p.create(t, "default", "ConfigMap", ns+"-elsewhere")
	const hold = `{"metadata": {"finalizers": ["example.com/hold"]}}`
	p.patch(t, elsewhere, hold)
	refs, err := json.Marshal([]metav1.OwnerReference{owner(root, true)})
	if err != nil {
		t.Fatal(err)
	}
	p.remove(t, p.create(t, ns, "Gadget", "held", owner(root, true)), background)
	p.patch(t, elsewhere, fmt.Sprintf(`{"metadata": {"ownerReferences": %s}}`, refs))
	p.remove(t, root, foreground)
	p.untilGone(t, root)
	if p.get(t, elsewhere) == nil {
		t.Error("the object in the other namespace is gone, whose finalizer nobody removed")
	}
	p.patch(t, elsewhere, `{"metadata": {"finalizers": null}}`)
}

func collectForegroundUnblocked(t *testing.T, p *plane, ns string) {
	root := p.create(t, ns, "ConfigMap", "root")
	held := p.create(t, ns, "Gadget", "held", owner(root, true))
	p.patch(t, held, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	p.remove(t, root, foreground)
	until(t, "the dependent is being deleted", func() bool { return p.get(t, held).GetDeletionTimestamp() != nil })
	p.patch(t, held, `{"metadata": {"ownerReferences": null}}`)
	p.untilGone(t, root)
	p.patch(t, held, `{"metadata": {"finalizers": null}}`)
	p.untilGone(t, held)
}

func collectOrphan(t *testing.T, p *plane, ns string) {
	root := p.create(t, ns, "Gadget", "root")
	var dependents []*unstructured.Unstructured
	for i := range 5 {
		dependents = append(dependents, p.create(t, ns, "ConfigMap", fmt.Sprint("child-", i), owner(root, true)))
	}
	p.remove(t, root, orphan)
	p.untilGone(t, root)
	for _, d := range dependents {
		if refs := p.get(t, d).GetOwnerReferences(); len(refs) > 0 {
			t.Errorf("an orphan has owners: %v", refs)
		}
	}
	p.stays(t, dependents...)
}

func collectAbsentOwner(t *testing.T, p *plane, ns string) {
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "0f8fad5b-d9cb-469f-a165-70867728950e"}
	p.untilGone(t, p.create(t, ns, "Gadget", "child", ref))
	ref.UID = "not a uuid"
	p.untilGone(t, p.create(t, ns, "Gadget", "child", ref))
}

func collectAnotherUID(t *testing.T, p *plane, ns string) {
	root := p.create(t, ns, "ConfigMap", "root")
	ref := owner(root, false)
	ref.UID = "11111111-d9cb-469f-a165-70867728950e"
	p.untilGone(t, p.create(t, ns, "Gadget", "child", ref))
	// The right UID, and another name.
	ref = owner(root, false)
	ref.Name = "other"
	p.untilGone(t, p.create(t, ns, "Gadget", "child", ref))
	p.stays(t, root)
}

func collectAnotherNamespace(t *testing.T, p *plane, ns string) {
	root := p.create(t, "default", "ConfigMap", "root-of-"+ns)
	p.untilGone(t, p.create(t, ns, "Gadget", "child", owner(root, false)))
	p.stays(t, root)
	events, err := p.in(ns, "events").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=child"})
	if err != nil || len(events.Items) != 1 || events.Items[0].Object["reason"] != "OwnerRefInvalidNamespace" {
		t.Errorf("events about the child: %v, %v", events, err)
	}
}

func collectTwoOwners(t *testing.T, p *plane, ns string) {
	one, two := p.create(t, ns, "ConfigMap", "one"), p.create(t, ns, "Gadget", "two")
	child := p.create(t, ns, "Secret", "child", owner(one, true), owner(two, true))
	p.remove(t, one, background)
	until(t, "the owner that is gone is taken off", func() bool { return len(p.get(t, child).GetOwnerReferences()) == 1 })
	p.stays(t, child)
	p.remove(t, two, foreground)
	p.untilGone(t, child, two)
}

func collectCycle(t *testing.T, p *plane, ns string) {
	for i, policy := range []metav1.DeletionPropagation{background, foreground} {
		a := p.create(t, ns, "Gadget", fmt.Sprint("a", i))
		b := p.create(t, ns, "ConfigMap", fmt.Sprint("b", i), owner(a, true))
		c := p.create(t, ns, "Secret", fmt.Sprint("c", i), owner(b, true))
		p.patch(t, a, fmt.Sprintf(`{"metadata": {"ownerReferences": [
			{"apiVersion": "v1", "kind": "Secret", "name": %q, "uid": %q, "blockOwnerDeletion": true}]}}`, c.GetName(), c.GetUID()))
		p.stays(t, a, b, c)
		p.remove(t, a, policy)
		p.untilGone(t, a, b, c)
	}
}

// collectCycleOfDeleted has users delete all of a cycle in the foreground.
func collectCycleOfDeleted(t *testing.T, p *plane, ns string) {
	var all []*unstructured.Unstructured
	for i := range 20 {
		a := p.create(t, ns, "Gadget", fmt.Sprint("a", i))
		b := p.create(t, ns, "ConfigMap", fmt.Sprint("b", i), owner(a, true))
		p.patch(t, a, fmt.Sprintf(`{"metadata": {"ownerReferences": [
			{"apiVersion": "v1", "kind": "ConfigMap", "name": %q, "uid": %q, "blockOwnerDeletion": true}]}}`, b.GetName(), b.GetUID()))
		all = append(all, a, b)
	}
	var deletions sync.WaitGroup
	for _, o := range all {
		deletions.Go(func() {
			policy := foreground
			err := p.in(ns, plural(o.GetKind())).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	deletions.Wait()
	p.untilGone(t, all...)
}

func collectClusterScopedOwner(t *testing.T, p *plane, ns string) {
	realm := p.create(t, "", "Realm", "realm-"+ns)
	below := p.create(t, "", "Realm", "below-"+ns, owner(realm, true))
	child := p.create(t, ns, "ConfigMap", "child", owner(below, true))
	p.stays(t, child)
	p.remove(t, realm, foreground)
	p.untilGone(t, child, below, realm)
}

func collectNamespacedOwnerAbove(t *testing.T, p *plane, ns string) {
	root := p.create(t, ns, "ConfigMap", "root")
	realm := p.create(t, "", "Realm", "realm-"+ns, owner(root, false))
	p.stays(t, realm)
	p.remove(t, root, background)
	p.stays(t, realm)
}

func collectUnknownKind(t *testing.T, p *plane, ns string) {
	ref := metav1.OwnerReference{APIVersion: "nowhere.example.com/v1", Kind: "Nobody", Name: "x", UID: "0f8fad5b-d9cb-469f-a165-70867728950e"}
	p.stays(t, p.create(t, ns, "Gadget", "child", ref))
}

func collectAddedOwner(t *testing.T, p *plane, ns string) {
	root, child := p.create(t, ns, "Gadget", "root"), p.create(t, ns, "ConfigMap", "child")
	p.patch(t, child, fmt.Sprintf(`{"metadata": {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Gadget", "name": "root", "uid": %q}]}}`, root.GetUID()))
	p.remove(t, root, background)
	p.untilGone(t, child)
}
