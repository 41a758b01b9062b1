//go:build unix

package etcdserve

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
)

func gadgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
}

// kinds are those of the objects that are compared across restarts.
func kinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		configMaps(),
		gadgets(),
		{Version: "v1", Resource: "namespaces"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	}
}

// customResources: objects of a CRD are served, and a watch sees each change to them.
func customResources(t *testing.T, s *server) {
	preserve := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve},
				},
			}},
		},
	}
	_, err := s.extensions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{})
	must(t, err)
	s.namespace(t, "custom")
	c := s.dynamic.Resource(gadgets()).Namespace("custom")
	var from string
	until(t, "gadgets are served", func(ctx context.Context) error {
		list, err := c.List(ctx, metav1.ListOptions{})
		if err == nil {
			from = list.GetResourceVersion()
		}
		return err
	})
	f := follow(t, c, from)
	var made []change
	create := func(name string) *unstructured.Unstructured {
		o, err := c.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": name}, "size": int64(1),
		}}, metav1.CreateOptions{})
		must(t, err)
		made = append(made, changed(watch.Added, o))
		return o
	}
	for i := range 3 {
		o := create(fmt.Sprintf("gadget-%d", i))
		o.Object["size"] = int64(2)
		o, err := c.Update(t.Context(), o, metav1.UpdateOptions{})
		must(t, err)
		made = append(made, changed(watch.Modified, o))
	}
	must(t, c.Delete(t.Context(), "gadget-1", metav1.DeleteOptions{}))
	made = append(made, change{string(watch.Deleted), "gadget-1", unknown})
	create(last)
	seen := f.seen(t)
	if diff := equal(made, seen); diff != "" {
		t.Errorf("changes seen by a watch (-made +seen):\n%s", diff)
	}
	got, _ := listed(t, c)
	if diff := cmp.Diff(replayed(map[string]string{}, seen), got); diff != "" {
		t.Errorf("custom resources (-changes +list):\n%s", diff)
	}
}

// namespaces: one that is deleted takes no objects, and is gone when it is finalized. What is in it would be
// deleted by kube-controller-manager.
func namespaces(t *testing.T, s *server) {
	const name = "ending"
	objects, all := s.namespace(t, name), s.client.CoreV1().Namespaces()
	_, err := objects.Create(t.Context(), configMap("kept", ""), metav1.CreateOptions{})
	must(t, err)
	must(t, all.Delete(t.Context(), name, metav1.DeleteOptions{}))
	n, err := all.Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	if n.Status.Phase != corev1.NamespaceTerminating || n.DeletionTimestamp == nil {
		t.Errorf("a deleted namespace is %s since %v", n.Status.Phase, n.DeletionTimestamp)
	}
	until(t, "a terminating namespace refuses objects", func(ctx context.Context) error { // which kube-apiserver knows by a watch
		_, err := objects.Create(ctx, configMap("late", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating says %w", err)
		}
		return nil
	})
	_, err = objects.Get(t.Context(), "kept", metav1.GetOptions{})
	must(t, err)
	must(t, objects.Delete(t.Context(), "kept", metav1.DeleteOptions{}))
	n.Spec.Finalizers = nil
	_, err = all.Finalize(t.Context(), n, metav1.UpdateOptions{})
	must(t, err)
	if _, err := all.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a finalized namespace is there: %v", err)
	}
}

// leases: a stale update is a conflict, and of many that count, none is lost.
func leases(t *testing.T, s *server) {
	s.namespace(t, "leases")
	c := s.client.CoordinationV1().Leases("leases")
	stale, err := c.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lease"}}, metav1.CreateOptions{})
	must(t, err)
	count := func() error {
		l, err := c.Get(t.Context(), "lease", metav1.GetOptions{})
		if err != nil {
			return err
		}
		n := int32(1)
		if l.Spec.LeaseTransitions != nil {
			n += *l.Spec.LeaseTransitions
		}
		l.Spec.LeaseTransitions = &n
		_, err = c.Update(t.Context(), l, metav1.UpdateOptions{})
		return err
	}
	must(t, count())
	holder := "stale"
	stale.Spec.HolderIdentity = &holder
	if _, err := c.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale update says %v, want a conflict", err)
	}
	const counters, each = 4, 10
	must(t, together(counters, func(int) error {
		for range each {
			err := count()
			for apierrors.IsConflict(err) {
				err = count()
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	l, err := c.Get(t.Context(), "lease", metav1.GetOptions{})
	must(t, err)
	if n := *l.Spec.LeaseTransitions; n != counters*each+1 || l.Spec.HolderIdentity != nil {
		t.Errorf("%d updates have been counted, want %d; the holder is %v", n, counters*each+1, l.Spec.HolderIdentity)
	}
}

// events: they are there, and gone when their time is over, which a watch sees.
func events(t *testing.T, s *server) {
	s.namespace(t, "events")
	c := s.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace("events")
	_, from := listed(t, c)
	w, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from})
	must(t, err)
	defer w.Stop()
	o, err := c.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": "event"}, "reason": "Tested",
		"involvedObject": map[string]any{"kind": "Namespace", "name": "events", "namespace": "events"},
	}}, metav1.CreateOptions{})
	must(t, err)
	created := changed(watch.Added, o)
	for _, want := range []change{created, {string(watch.Deleted), "event", unknown}} {
		select {
		case e := <-w.ResultChan():
			o, is := e.Object.(metav1.Object)
			if !is {
				t.Fatalf("a watch of events says %v, want %v", e, want)
			}
			if diff := equal([]change{want}, []change{changed(e.Type, o)}); diff != "" {
				t.Errorf("a watch of events (-want +got):\n%s", diff)
			}
		case <-time.After(patience):
			t.Fatalf("a watch of events does not see %v within %v", want, patience)
		}
	}
	if _, err := c.Get(t.Context(), "event", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an event is there after its time: %v", err)
	}
}

// pages: a list in pages is that of the moment of its first page, whatever is written meanwhile.
func pages(t *testing.T, s *server, namespace string) {
	const size, writers, limit = 1500, 10, 400
	c := s.namespace(t, namespace)
	must(t, together(writers, func(w int) error {
		for i := range size / writers {
			if _, err := c.Create(t.Context(), configMap(fmt.Sprintf("%d-%04d", w, i), "a"), metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	}))
	want, _ := listed(t, c)
	if len(want) != size {
		t.Errorf("a list has %d objects, want %d", len(want), size)
	}
	got, at, next := map[string]string{}, "", ""
	for page := 0; page == 0 || next != ""; page++ {
		list, err := c.List(t.Context(), metav1.ListOptions{Limit: limit, Continue: next})
		must(t, err)
		if at == "" {
			at = list.GetResourceVersion()
		}
		if v := list.GetResourceVersion(); v != at {
			t.Errorf("page %d is of resource version %s, and the first of %s", page, v, at)
		}
		for _, o := range list.Items {
			got[o.GetName()] = o.GetResourceVersion()
		}
		next = list.GetContinue()
		must(t, c.Delete(t.Context(), "9-"+fmt.Sprintf("%04d", page), metav1.DeleteOptions{}))
		_, err = c.Create(t.Context(), configMap("9-new-"+strconv.Itoa(page), "a"), metav1.CreateOptions{})
		must(t, err)
		_, err = c.Update(t.Context(), configMap("9-0149", strconv.Itoa(page)), metav1.UpdateOptions{})
		must(t, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-one list +pages):\n%s", diff)
	}
}

// resumedWatches: a watch from an old resource version sees what came after it.
func resumedWatches(t *testing.T, s *server) {
	c := s.namespace(t, "resumed-"+rand.String(5))
	_, err := write(t.Context(), c, "before", 5)
	must(t, err)
	versions, from := listed(t, c)
	made, err := write(t.Context(), c, "after", 20)
	must(t, err)
	made = append(made, finish(t, c))
	for range 2 { // each as the first
		seen := follow(t, c, from).seen(t)
		if diff := equal(made, seen); diff != "" {
			t.Errorf("changes seen by a watch from resource version %s on (-made +seen):\n%s", from, diff)
		}
		got, _ := listed(t, c)
		if diff := cmp.Diff(replayed(versions, seen), got); diff != "" {
			t.Errorf("objects (-changes +list):\n%s", diff)
		}
	}
}
