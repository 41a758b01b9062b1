package crd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
)

// plain is a version whose objects hold anything.
const plain = `
versions:
- name: v1
  served: true
  storage: true
  schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// remove deletes a CRD, waits until it is gone, and returns how long that took.
// Before it waits, it calls the functions.
func (p plane) remove(t *testing.T, name string, before ...func()) time.Duration {
	t.Helper()
	w, err := p.Resource(crds).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	begun := time.Now()
	if err := p.Resource(crds).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range before {
		f()
	}
	timeout := time.After(patience)
	for {
		select {
		case e := <-w.ResultChan():
			if e.Type == watch.Deleted {
				return time.Since(begun)
			}
		case <-timeout:
			t.Fatalf("%s is still there after %v: %v", name, patience, get(t, p.Resource(crds), name).Object)
		}
	}
}

// TestDeletedDefinition: with a CRD go its objects, and its name can be used
// again at once, for an empty resource.
func TestDeletedDefinition(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := p.of("cups", "v1")
	for round := range 3 {
		begun := time.Now()
		def := definition(t, "cups", "Cup", plain)
		// A second after the CRD its watches end, whatever they have not told. It
		// is held until this one has told all.
		def.SetFinalizers([]string{"example.com/watched"})
		p.define(t, def)
		list, err := c.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 0 {
			t.Fatalf("round %d: %v, %v, want an empty list", round, list, err)
		}
		for i := range 5 {
			create(t, c, fmt.Sprintf("{apiVersion: example.com/v1, kind: Cup, metadata: {name: c%d}}", i))
		}
		ready := time.Since(begun)
		w, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		removed := p.remove(t, "cups.example.com", func() {
			deleted := 0
			for e := range w.ResultChan() { // ends with the storage
				if e.Type == watch.Deleted {
					deleted++
				}
				if deleted == 5 {
					break
				}
			}
			w.Stop()
			if deleted != 5 {
				t.Errorf("round %d: a watch told %d deletes, want 5", round, deleted)
			}
			const none = `{"metadata": {"finalizers": null}}`
			if _, err := p.Resource(crds).Patch(t.Context(), "cups.example.com", types.MergePatchType, []byte(none), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("round %d: created with 5 objects in %v, deleted in %v", round, ready, removed)
	}
	eventually(t, "the resource goes", func() error {
		if _, err := c.List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("a list of a resource without a CRD: %w", err)
		}
		return nil
	})
}

// TestNameConflict: of two CRDs with the same kind the first has it, and the
// second gets it when the first is gone.
func TestNameConflict(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.define(t, definition(t, "cups", "Cup", plain))
	if _, err := p.Resource(crds).Create(t.Context(), definition(t, "mugs", "Cup", plain), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refusal", func() error {
		conditions, _, _ := unstructured.NestedSlice(get(t, p.Resource(crds), "mugs.example.com").Object, "status", "conditions")
		if text := fmt.Sprint(conditions); !strings.Contains(text, "KindConflict") && !strings.Contains(text, "already in use") {
			return fmt.Errorf("conditions: %s", text)
		}
		return nil
	})
	if _, err := p.of("mugs", "v1").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a list of a CRD whose names are taken: %v", err)
	}
	create(t, p.of("cups", "v1"), "{apiVersion: example.com/v1, kind: Cup, metadata: {name: a}}")
	p.remove(t, "cups.example.com")
	eventually(t, "the second CRD gets the names", func() error {
		if u := get(t, p.Resource(crds), "mugs.example.com"); !established(u) {
			return fmt.Errorf("not established: %v", at(u, "status.conditions"))
		}
		return nil
	})
	if list, err := p.of("mugs", "v1").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("a list of the second CRD: %v, %v", list, err)
	}
}

// TestNameRace: of many CRDs with the same short name that are created at the same time,
// and of some that are changed to have it, one has it.
func TestNameRace(t *testing.T) {
	t.Parallel()
	p := start(t)
	for round := range 5 {
		short := fmt.Sprint("cup", round)
		var group errgroup.Group
		var names []string
		for i := range 8 {
			def := definition(t, fmt.Sprintf("cups%d-%d", round, i), fmt.Sprintf("Cup%d-%d", round, i), plain)
			names = append(names, def.GetName())
			if i%2 == 0 {
				p.define(t, def)
			}
			patch := fmt.Appendf(nil, `{"spec": {"names": {"shortNames": [%q]}}}`, short)
			group.Go(func() error {
				if i%2 == 0 {
					_, err := p.Resource(crds).Patch(t.Context(), def.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
					return err
				}
				_, err := p.Resource(crds).Create(t.Context(), set(t, def, "spec.names.shortNames", []any{short}), metav1.CreateOptions{})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all are judged, and one has the name", func() error {
			var have []string
			for _, name := range names {
				u := get(t, p.Resource(crds), name)
				if at(u, "status.acceptedNames.shortNames") != nil {
					have = append(have, name)
				} else if text := fmt.Sprint(at(u, "status.conditions")); !strings.Contains(text, "already in use") {
					return fmt.Errorf("%s was not refused: %s", name, text)
				}
			}
			if len(have) != 1 {
				t.Fatalf("%q have the name %s", have, short)
			}
			return nil
		})
	}
}

// TestGroupOfBuiltin: a group that a part serves answers for itself, as in
// kube-apiserver: a CRD in it is established and not reachable, and what the
// part serves works as before, also when the CRD goes.
func TestGroupOfBuiltin(t *testing.T) {
	t.Parallel()
	p := start(t, coordination.Leases{})
	def := definition(t, "locks", "Lock", strings.Replace(plain, "name: v1", "name: v7", 1))
	def.SetName("locks.coordination.k8s.io")
	def.SetAnnotations(map[string]string{"api-approved.kubernetes.io": "unapproved, a test"})
	p.define(t, set(t, def, "spec.group", "coordination.k8s.io"))
	locks := p.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v7", Resource: "locks"}).Namespace("default")
	leases := p.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace("default")
	if _, err := locks.List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a list of a CRD in the group of a part: %v", err)
	}
	create(t, leases, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a}}")
	p.remove(t, "locks.coordination.k8s.io")
	get(t, leases, "a")
}

// TestManyAtOnce: 50 CRDs that are created at the same time are all usable.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t)
	begun := time.Now()
	const many = 50
	var group errgroup.Group
	for i := range many {
		def := definition(t, fmt.Sprintf("many%ds", i), fmt.Sprintf("Many%d", i), plain)
		group.Go(func() error {
			_, err := p.Resource(crds).Create(t.Context(), def, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are established", func() error {
		list, err := p.Resource(crds).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		usable := 0
		for i := range list.Items {
			if established(&list.Items[i]) {
				usable++
			}
		}
		if usable != many {
			return fmt.Errorf("%d of %d", usable, many)
		}
		return nil
	})
	t.Logf("%d CRDs established in %v", many, time.Since(begun))
	for i := range many {
		u := object(t, fmt.Sprintf("{apiVersion: example.com/v1, kind: Many%d, metadata: {name: a}}", i))
		group.Go(func() error {
			_, err := p.of(fmt.Sprintf("many%ds", i), "v1").Create(t.Context(), u, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d CRDs with an object each in %v", many, time.Since(begun))
}
