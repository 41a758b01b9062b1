package lifecycle_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// shared is one running storage that several servers use, as they do an etcd cluster.
type shared struct{ controlplane.Backend }

func (s shared) Open() controlplane.Backend { return s }
func (shared) Traits() controlplane.Traits  { return controlplane.Traits{Shared: true} }
func (shared) Start(context.Context) error  { return nil }
func (shared) Stop(context.Context) error   { return nil }
func newShared(t *testing.T) controlplane.Storage {
	t.Helper()
	s := memory.Store{}.Open()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return shared{s}
}

// lease is how long a server that says nothing holds a Lease.
const lease = 10 * time.Second

// TestTakeover: of two servers on one storage, one does the work, and the other
// within 15 s when it is gone.
func TestTakeover(t *testing.T) {
	d := newShared(t)
	begun := time.Now()
	first := start(t, d, coordination.Leases{})
	leases := first.client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace("kube-system")
	holders := func() map[string]string {
		list, err := leases.List(t.Context(), metav1.ListOptions{LabelSelector: "!apiserver.kubernetes.io/identity"}) // those of work
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, l := range list.Items {
			spec, _ := l.Object["spec"].(map[string]any)
			all[l.GetName()], _ = spec["holderIdentity"].(string)
		}
		return all
	}
	until(t, "the first server holds both Leases", func() bool { return len(holders()) == 2 })
	before := holders()
	second := start(t, d, coordination.Leases{})
	root := second.create(t, "default", "ConfigMap", "root")
	child := second.create(t, "default", "Gadget", "child", owner(root, false))
	ns := second.create(t, "", "Namespace", "shop")
	second.create(t, "shop", "ConfigMap", "cm")
	second.remove(t, root, background)
	second.remove(t, ns, background)
	second.untilGone(t, child, ns)
	for name, holder := range holders() {
		// A holder that cannot renew it for so long, on a machine that is too busy,
		// has lost it, as if it were gone.
		if before[name] != holder && time.Since(begun) < lease {
			t.Errorf("Lease %s went from %s to %s while its holder lives", name, before[name], holder)
		}
	}
	first.stop()
	stopped := time.Now()
	root = second.create(t, "default", "ConfigMap", "root")
	child = second.create(t, "default", "Gadget", "child", owner(root, false))
	ns = second.create(t, "", "Namespace", "store") // "shop" may be terminating in admission's cache
	second.create(t, "store", "ConfigMap", "cm")
	second.remove(t, root, background)
	second.remove(t, ns, background)
	second.untilGone(t, child, ns)
	t.Logf("the second server took over within %v", time.Since(stopped).Round(time.Millisecond))
}

// TestReplicasNeedLeases: where the storage is shared, Build says what is missing.
func TestReplicasNeedLeases(t *testing.T) {
	_, err := controlplane.New("x").Storage(newShared(t)).With(core.Namespaces{}, lifecycle.GarbageCollection{}).Build()
	if err == nil || !strings.Contains(err.Error(), "add coordination.Leases{}") {
		t.Errorf("got error %v, want one that says what to add", err)
	}
}
