package terminator

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestHeld: what discovery does not list yet is among what a namespace holds.
func TestHeld(t *testing.T) {
	t.Parallel()
	storage := memory.Store{}.Open()
	if err := storage.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := storage.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	client, err := storage.Client()
	if err != nil {
		t.Fatal(err)
	}
	for key, kind := range map[string]string{
		"configmaps/shop/listed":           "v1 ConfigMap shop listed",
		"bindings/shop/cannot":             "v1 Binding shop cannot",
		"example.com/gadgets/shop/new":     "example.com/v2 Gadget shop new",
		"example.com/gadgets/shop/another": "example.com/v2 Gadget shop another",
		"example.com/tools/yard/elsewhere": "example.com/v1 Tool yard elsewhere",
	} {
		var version, what, namespace, name string
		if _, err := fmt.Sscan(kind, &version, &what, &namespace, &name); err != nil {
			t.Fatal(err)
		}
		key = "/registry/" + key
		value := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":%q}}`, version, what, namespace, name, name)
		r, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Commit()
		if err != nil || !r.Succeeded {
			t.Fatal(key, r, err)
		}
	}
	hub := feed.NewHub(client, "/registry", nil)
	f := hub.Feed("")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); go hub.Run(ctx); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := f.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	listed := func(resource string, verbs ...string) catalog.Target {
		return catalog.Target{GroupVersionResource: corev1.SchemeGroupVersion.WithResource(resource), Namespaced: true, Verbs: verbs}
	}
	s := &catalog.Served{Resources: map[schema.GroupResource]catalog.Target{
		corev1.Resource("configmaps"): listed("configmaps", "deletecollection"),
		corev1.Resource("secrets"):    listed("secrets", "deletecollection"),
		corev1.Resource("bindings"):   listed("bindings", "create"),
	}}
	var got []string
	for _, res := range (&terminator{feed: f}).held(s, "shop") {
		got = append(got, res.GroupVersionResource.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"/v1, Resource=configmaps", "example.com/v2, Resource=gadgets"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTimeIsOver: a resource that there was no time to ask counts as failed, not as empty.
func TestTimeIsOver(t *testing.T) {
	t.Parallel()
	objects, err := metadata.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	fruit := schema.GroupVersion{Group: "fruit.example.com", Version: "v1"}
	var others []catalog.Target
	for _, name := range []string{"apples", "pears", "plums"} {
		others = append(others, catalog.Target{
			GroupVersionResource: fruit.WithResource(name), Namespaced: true, Verbs: []string{"list", "deletecollection"},
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &remains{}
	(&terminator{objects: objects}).emptyOthers(ctx, fruit, others, "shop", r)
	if len(r.failed) != len(others) || !r.blocks() {
		t.Errorf("%d resources: %d failed: %v", len(others), len(r.failed), r.failed)
	}
}
