package main

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const (
	rowTenantHeap       = "live heap, KiB each"
	rowTenantMemory     = "anonymous memory, KiB each"
	rowTenantGoroutines = "goroutines each"
)

func tenantRow(n int, what string) string {
	return fmt.Sprintf("%d EtcdStorages, none connected: %s", n, what)
}

// measureTenants measures what EtcdStorages take that are ready, and that nobody is connected to. They have their
// Secrets and ConfigMaps.
func measureTenants(ctx context.Context, l *lab) error {
	lender, err := l.lender(storageSQLite)
	if err != nil {
		return err
	}
	return with(ctx, l, lender, func(s *server) error {
		all, err := s.tenants()
		if err != nil {
			return err
		}
		// The first ones bring what all have in common, and the connection of the client.
		if err := all.fill(ctx, fillClients); err != nil {
			return err
		}
		before, err := s.resting(ctx)
		if err != nil {
			return err
		}
		for _, n := range slices.Sorted(slices.Values(l.tenants)) {
			if err := all.fill(ctx, fillClients+n); err != nil {
				return err
			}
			after, err := s.resting(ctx)
			if err != nil {
				return err
			}
			if err := s.phase(fmt.Sprint("tenants ", n), func() error { return nil }); err != nil { // what lives
				return err
			}
			each := func(row string, more float64) { l.lent.add(phaseTenants, tenantRow(n, row), more/1024/float64(n)) }
			each(rowTenantHeap, after.heap-before.heap)
			each(rowTenantMemory, after.anonymous-before.anonymous)
			l.lent.add(phaseTenants, tenantRow(n, rowTenantGoroutines), (after.goroutines-before.goroutines)/float64(n))
		}
		return nil
	})
}

// restingServer is what a server has while nobody asks anything of it.
type restingServer struct{ heap, anonymous, goroutines float64 }

// resting reads what a server has once it has settled and its garbage is collected.
func (s *server) resting(ctx context.Context) (r restingServer, err error) {
	if err := pause(ctx, settle); err != nil {
		return r, err
	}
	metrics, err := s.collected(ctx)
	if err != nil {
		return r, err
	}
	m, err := s.memory()
	return restingServer{metrics["go_gc_heap_live_bytes"], m.anonymous, metrics["go_goroutines"]}, err
}

// tenants makes EtcdStorages, on one connection.
type tenants struct {
	client dynamic.ResourceInterface
	made   int
}

func (s *server) tenants() (*tenants, error) {
	all, err := s.dynamics(1)
	if err != nil {
		return nil, err
	}
	return &tenants{client: all[0].Resource(schema.GroupVersionResource{
		Group: "storage.sailplane.dev", Version: "v1alpha1", Resource: "etcdstorages",
	})}, nil
}

// fill makes EtcdStorages until there are so many, which are ready.
func (t *tenants) fill(ctx context.Context, n int) error {
	first := t.made
	t.made = n
	_, err := repeat(ctx, fillClients, n-first, func(ctx context.Context, _, i int) error {
		name := fmt.Sprintf("tenant-%d", first+i)
		if err := t.create(ctx, name); err != nil {
			return err
		}
		_, err := t.await(ctx, name)
		return err
	})
	return err
}

// create makes an EtcdStorage.
func (t *tenants) create(ctx context.Context, name string) error {
	at := map[string]any{"namespace": metav1.NamespaceDefault, "name": name}
	_, err := t.client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.sailplane.dev/v1alpha1", "kind": "EtcdStorage", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"clientCertificate": map[string]any{"secret": at}, "authority": map[string]any{"configMap": at}},
	}}, metav1.CreateOptions{})
	return err
}

// await returns the endpoint of an EtcdStorage when it is ready.
func (t *tenants) await(ctx context.Context, name string) (endpoint string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, err := t.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		conditions, _, _ := unstructured.NestedSlice(s.Object, "status", "conditions") // none at first
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Ready" && c["status"] == "True" {
				endpoint, _, err = unstructured.NestedString(s.Object, "status", "endpoint")
				return endpoint, err
			}
		}
		if pause(ctx, look) != nil {
			return "", fmt.Errorf("EtcdStorage %q is not ready: %v", name, conditions)
		}
	}
}
