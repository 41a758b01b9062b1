package kept_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/test/kept"
)

// checkWrites writes, and watches it from the present and from the listed revision.
func (s *subject) checkWrites(t *testing.T) {
	t.Helper()
	_, now, err := kept.List(t.Context(), s.configMaps(), kept.ConfigMaps(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now < s.listing.Revision {
		t.Errorf("the revision of a list is %d, want %d at least", now, s.listing.Revision)
	}
	present, listed := s.follow(t, now), s.follow(t, s.listing.Revision)

	update(t, s.in("kept.example.com", "v1", "gadgets"), "new", "spec")
	update(t, s.in("kept.example.com", "v1alpha1", "gadgets"), "old", "spec")
	update(t, s.in("", "v1", "secrets"), "opaque", "metadata", "labels")
	update(t, s.in("rbac.authorization.k8s.io", "v1", "roles"), "Kept: rôle 役割 (1+1=2) 'q' \"d\" _*?#&", "metadata", "labels")
	old, updated := update(t, s.configMaps(), "updated", "data")
	if _, err := s.configMaps().Update(t.Context(), old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of a listed object that changed: %v, want a conflict", err)
	}
	if err := s.configMaps().Delete(t.Context(), "a0", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := s.configMaps().Create(t.Context(), configMap("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create what is listed: %v, want that it exists", err)
	}
	if _, err := s.configMaps().Create(t.Context(), configMap("a0"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := s.configMaps().Create(t.Context(), configMap("deleted"), metav1.CreateOptions{}); err != nil {
		t.Errorf("create what was deleted: %v", err)
	}
	want := []string{"MODIFIED updated", "DELETED a0", "ADDED a0", "ADDED deleted"}
	for name, f := range map[string]*follower{"present": present, "listed": listed} {
		events, gone := f.events(t, len(want))
		if gone && name == "listed" {
			t.Logf("what followed the listed revision %d is gone", s.listing.Revision)
			continue
		}
		if diff := cmp.Diff(want, s.ordered(t, events)); diff != "" {
			t.Errorf("watch from the %s revision (-want +got):\n%s", name, diff)
		}
		if gone || events[0].ResourceVersion != updated.GetResourceVersion() {
			t.Errorf("watch from the %s revision: gone is %v, want an event of revision %s first: %+v",
				name, gone, updated.GetResourceVersion(), events)
		}
	}
}

// ordered are the types and names of events, of which each must have a higher
// revision than the one before and than all that is listed.
func (s *subject) ordered(t *testing.T, events []kept.Event) []string {
	t.Helper()
	last := s.listing.Revision
	var all []string
	for _, e := range events {
		revision, err := strconv.ParseInt(e.ResourceVersion, 10, 64)
		if err != nil || revision <= last {
			t.Errorf("%s %s has the revision %s after %d: %v", e.Type, e.Name, e.ResourceVersion, last, err)
		}
		last = revision
		all = append(all, e.Type+" "+e.Name)
	}
	return all
}

// update sets one more field of an object below a path.
func update(t *testing.T, in dynamic.ResourceInterface, name string, path ...string) (old, updated *unstructured.Unstructured) {
	t.Helper()
	old, err := in.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := old.DeepCopy()
	if err := unstructured.SetNestedField(changed.Object, "later", append(path, "changed")...); err != nil {
		t.Fatal(err)
	}
	if updated, err = in.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return old, updated
}

func configMap(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
	}}
}

// checkRules finds that a kept policy and a kept quota still refuse.
func (s *subject) checkRules(t *testing.T) {
	t.Helper()
	// Servers learn of policies soon after they are ready.
	await(t, "the kept policy refuses", func(ctx context.Context) (bool, error) {
		forbidden := configMap("forbidden")
		forbidden.Object["data"] = map[string]any{"forbidden": ""}
		_, err := s.configMaps().Create(ctx, forbidden, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err), ignoreInvalid(err)
	})
	counted := s.client.Resource(kept.ConfigMaps()).Namespace("kept-quota")
	for i := range 2 {
		if _, err := counted.Create(t.Context(), configMap(fmt.Sprint("more-", i)), metav1.CreateOptions{}); err != nil {
			t.Errorf("within the quota: %v", err)
		}
	}
	if _, err := counted.Create(t.Context(), configMap("too-many"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("beyond the quota: %v, want forbidden", err)
	}
}

func ignoreInvalid(err error) error {
	if apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// checkDeletion finishes what was being deleted, and deletes an owner.
func (s *subject) checkDeletion(t *testing.T) {
	t.Helper()
	release := func(in dynamic.ResourceInterface, name string) {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := in.Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
	release(s.configMaps(), "leaving")
	release(s.configMaps(), "held")
	release(s.client.Resource(kept.ConfigMaps()).Namespace("kept-leaving"), "holds")
	if err := s.configMaps().Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	// Nobody knows what the remote group has in the namespace until it is no longer registered.
	services := s.client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	if err := services.Delete(t.Context(), "v1.remote.kept.example.com", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	namespaces := s.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	for what, in := range map[string]dynamic.ResourceInterface{
		"leaving": s.configMaps(), "held": s.configMaps(), "child": s.configMaps(), "kept-leaving": namespaces,
	} {
		await(t, what+" goes away", func(ctx context.Context) (bool, error) {
			_, err := in.Get(ctx, what, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	}
}

// await waits for what nothing signals.
func await(t *testing.T, what string, done wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, kept.Limit, true, done); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
