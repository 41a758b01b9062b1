package core_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestNamespacesGoAway: who serves namespaces and says nothing else removes those that
// are deleted, with what they hold. What the deletion does is in pkg/lifecycle.
func TestNamespacesGoAway(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		part core.Namespaces
		gone bool
	}{
		"zero":         {core.Namespaces{}, true},
		"keep deleted": {core.Namespaces{KeepDeleted: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, client := t.Context(), run(t, tc.part, core.ConfigMaps{}).CoreV1()
			if _, err := client.Namespaces().Create(ctx, named("shop"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := client.ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stock"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			w, err := client.Namespaces().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=shop"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if err := client.Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			wait := 300 * time.Millisecond
			if tc.gone {
				wait = patience
			}
			gone, over := false, time.After(wait)
			for waiting := true; waiting && !gone; {
				select {
				case e := <-w.ResultChan():
					gone = e.Type == watch.Deleted
				case <-over:
					waiting = false
				}
			}
			_, err = client.ConfigMaps("shop").Get(ctx, "stock", metav1.GetOptions{})
			if gone != tc.gone || apierrors.IsNotFound(err) != tc.gone {
				t.Errorf("after %v the namespace is gone: %v, and what it held: %v; want %v", wait, gone, err, tc.gone)
			}
		})
	}
}

// together is a storage that several servers share.
type together struct{ controlplane.Storage }

// Traits implements controlplane.Storage.
func (together) Traits() controlplane.Traits { return controlplane.Traits{Shared: true} }

// TestNamespacesOnSharedStorage: one server of several removes them, elected by a Lease.
func TestNamespacesOnSharedStorage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		parts []controlplane.Part
		want  string
	}{
		"no leases":    {[]controlplane.Part{core.Namespaces{}}, `part "core.Namespaces": namespace-deletion: the storage is shared`},
		"leases":       {[]controlplane.Part{core.Namespaces{}, coordination.Leases{}}, ""},
		"keep deleted": {[]controlplane.Part{core.Namespaces{KeepDeleted: true}}, ""},
	} {
		_, err := controlplane.New("core-test").Storage(together{memory.Store{}}).With(tc.parts...).Build()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tc.want)
		}
	}
}
