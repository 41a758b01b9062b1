package lifecycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestNamespaceDeletion deletes a namespace with objects of several resources,
// one of which somebody holds.
func TestNamespaceDeletion(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, p *plane) {
		ns := p.create(t, "", "Namespace", "shop")
		var all []*unstructured.Unstructured
		for i := range 40 {
			all = append(all, p.create(t, "shop", "ConfigMap", fmt.Sprint("cm-", i)), p.create(t, "shop", "Gadget", fmt.Sprint("g-", i)))
		}
		held := all[len(all)-1]
		p.patch(t, held, `{"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}`)
		other := p.create(t, "default", "ConfigMap", "other")
		p.remove(t, ns, background)
		p.untilGone(t, all[:len(all)-1]...)
		want := map[corev1.NamespaceConditionType]string{
			"NamespaceDeletionDiscoveryFailure":           "False ResourcesDiscovered: All resources successfully discovered",
			"NamespaceDeletionGroupVersionParsingFailure": "False ParsedGroupVersions: All legacy kube types successfully parsed",
			"NamespaceDeletionContentFailure":             "False ContentDeleted: All content successfully deleted, may be waiting on finalization",
			"NamespaceContentRemaining":                   "True SomeResourcesRemain: Some resources are remaining: gadgets.example.com has 1 resource instances",
			"NamespaceFinalizersRemaining": "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: " +
				"example.com/hold in 1 resource instances, example.com/more in 1 resource instances",
		}
		// Those of a look before the last may be there first.
		diff := ""
		eventually(func() bool {
			diff = cmp.Diff(want, conditions(t, p.get(t, ns)))
			return diff == ""
		})
		if diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		p.patch(t, held, `{"metadata": {"finalizers": null}}`)
		p.untilGone(t, held, ns)
		p.stays(t, other)
		p.untilGone(t, removed(t, p, p.create(t, "", "Namespace", "shop")))
	})
}

// TestLateObject: what was admitted into a namespace and is written when that is
// removed is deleted, too.
func TestLateObject(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	p := start(t, memory.Store{}, admit.Validate("slow", func(_ context.Context, a admit.Attributes) error {
		if a.GetName() == "late" && a.GetOperation() == admission.Create {
			close(asked)
			<-answer
		}
		return nil
	}))
	ns := p.create(t, "", "Namespace", "shop")
	late := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "late"}}}
	created := make(chan error, 1)
	go func() {
		var err error
		late, err = p.in("shop", "configmaps").Create(t.Context(), late, metav1.CreateOptions{})
		created <- err
	}()
	<-asked
	p.remove(t, ns, background)
	p.untilGone(t, ns)
	other := p.create(t, "default", "ConfigMap", "other")
	close(answer)
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	p.untilGone(t, late)
	p.stays(t, other)
}

// TestManyNamespaces deletes more namespaces at once than are worked on, while
// one of them is held.
func TestManyNamespaces(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, p *plane) {
		var all []*unstructured.Unstructured
		for i := range 12 {
			ns := fmt.Sprint("many-", i)
			all = append(all, p.create(t, "", "Namespace", ns))
			p.create(t, ns, "ConfigMap", "cm")
		}
		held := p.create(t, "many-0", "Gadget", "held")
		p.patch(t, held, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
		for _, ns := range all {
			removed(t, p, ns)
		}
		p.untilGone(t, all[1:]...)
		if p.get(t, all[0]) == nil {
			t.Error("the namespace with an object that somebody holds is gone")
		}
		p.patch(t, held, `{"metadata": {"finalizers": null}}`)
		p.untilGone(t, all[0])
	})
}

func removed(t *testing.T, p *plane, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	p.remove(t, u, background)
	return u
}

func conditions(t *testing.T, u *unstructured.Unstructured) map[corev1.NamespaceConditionType]string {
	t.Helper()
	raw, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	var ns corev1.Namespace
	if err := json.Unmarshal(raw, &ns); err != nil {
		t.Fatal(err)
	}
	all := map[corev1.NamespaceConditionType]string{}
	for _, c := range ns.Status.Conditions {
		all[c.Type] = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	return all
}
