package lifecycle_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestPublish: what every namespace is to have is there, comes back, and goes
// with the namespace.
func TestPublish(t *testing.T) {
	p := start(t, memory.Store{}, core.ServiceAccounts{}, lifecycle.DefaultServiceAccounts{}, lifecycle.RootCA{Bundle: []byte("a certificate")})
	has := func(objects dynamic.ResourceInterface, name string) *unstructured.Unstructured {
		u, err := objects.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return u
	}
	ns := p.create(t, "", "Namespace", "shop")
	for _, namespace := range []string{"default", "kube-system", "shop"} {
		until(t, "namespace "+namespace+" has a ServiceAccount and the CA", func() bool {
			return has(p.in(namespace, "serviceaccounts"), "default") != nil && has(p.in(namespace, "configmaps"), "kube-root-ca.crt") != nil
		})
	}
	for resource, name := range map[string]string{"serviceaccounts": "default", "configmaps": "kube-root-ca.crt"} {
		objects := p.in("shop", resource)
		before := has(objects, name)
		if err := objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, name+" comes back", func() bool { u := has(objects, name); return u != nil && u.GetUID() != before.GetUID() })
	}
	bundle := func() string {
		data, _, _ := unstructured.NestedString(has(p.in("shop", "configmaps"), "kube-root-ca.crt").Object, "data", "ca.crt")
		return data
	}
	_, err := p.in("shop", "configmaps").Patch(t.Context(), "kube-root-ca.crt", "application/merge-patch+json",
		[]byte(`{"data": {"ca.crt": "another", "more": "x"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the bundle is written again", func() bool { return bundle() == "a certificate" })
	p.remove(t, ns, background)
	p.untilGone(t, ns)
	// Admission may still take one that is made at once for the one that is gone.
	for range 20 {
		ns = p.create(t, "", "Namespace", "shop")
		until(t, "a namespace that was made again has a ServiceAccount and the CA", func() bool {
			return has(p.in("shop", "serviceaccounts"), "default") != nil && has(p.in("shop", "configmaps"), "kube-root-ca.crt") != nil
		})
		p.remove(t, ns, background)
		p.untilGone(t, ns)
	}
}

// TestNeeds: parts say at Build what they cannot do without.
func TestNeeds(t *testing.T) {
	t.Parallel()
	_, err := controlplane.New("x").Storage(memory.Store{}).
		With(lifecycle.DefaultServiceAccounts{}, lifecycle.RootCA{}).Build()
	for _, want := range []string{
		`part "lifecycle.DefaultServiceAccounts": needs Namespace, which no part serves: add core.Namespaces{}`,
		`part "lifecycle.DefaultServiceAccounts": needs ServiceAccount, which no part serves: add core.ServiceAccounts{}`,
		`part "lifecycle.RootCA": needs ConfigMap, which no part serves: add core.ConfigMaps{}`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
