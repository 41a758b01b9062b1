// Package damage tests that a stored object which cannot be read, or is larger than
// objects may be, harms nobody else: on every storage that runs in the process.
package damage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

const patience = 2 * time.Minute

func storages(t *testing.T) map[string]controlplane.Storage {
	return map[string]controlplane.Storage{
		"memory": memory.Store{},
		"sqlite": sqlite.File{Path: filepath.Join(t.TempDir(), "state.db")},
		"etcd":   etcd.Embedded{Dir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true},
	}
}

// kept is a storage that outlives its servers, and that a test writes to.
type kept struct {
	controlplane.Backend
	traits controlplane.Traits
}

// Open implements controlplane.Storage.
func (k kept) Open() controlplane.Backend { return open{k.Backend} }

// Traits implements controlplane.Storage.
func (k kept) Traits() controlplane.Traits { return k.traits }

type open struct{ controlplane.Backend }

// Start implements controlplane.Backend.
func (open) Start(context.Context) error { return nil }

// Stop implements controlplane.Backend.
func (open) Stop(context.Context) error { return nil }

func keep(t *testing.T, s controlplane.Storage) (kept, *clientv3.Client) {
	t.Helper()
	b := s.Open()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	return kept{b, s.Traits()}, c
}

// serve runs a server until it is stopped, and returns clients of it.
func serve(t *testing.T, s controlplane.Storage) (*kubernetes.Clientset, dynamic.Interface) {
	t.Helper()
	server, err := controlplane.New("damage").Storage(s).With(preset.Standard(), crd.Definitions{}).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("the server ended: %v", err)
	case <-time.After(patience):
		t.Fatal("the server is not ready")
	}
	client, err := kubernetes.NewForConfig(server.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(server.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client, objects
}

// TestUnreadable: an object whose stored value is garbage, when the server starts
// or later, is left out of lists, is named by a read, and can be deleted.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	const key = "/registry/configmaps/default/garbage"
	for name, s := range storages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage, raw := keep(t, s)
			if _, err := raw.Txn(t.Context()).Then(clientv3.OpPut(key, "k8s\x00garbage")).Commit(); err != nil {
				t.Fatal(err)
			}
			client, _ := serve(t, storage)
			cms := client.CoreV1().ConfigMaps("default")
			good := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "good"}}
			if _, err := cms.Create(t.Context(), good, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, version := range []string{"", "0"} { // of the storage, and of the cache
				list, err := cms.List(t.Context(), metav1.ListOptions{ResourceVersion: version})
				if err != nil || !has(list, "good") || has(list, "garbage") {
					t.Errorf("list at version %q: %v, %v, want good without garbage", version, list, err)
				}
			}
			_, err := cms.Get(t.Context(), "garbage", metav1.GetOptions{})
			if err == nil || !strings.Contains(err.Error(), "default/garbage") || !strings.Contains(err.Error(), "delete it") {
				t.Errorf("get: %v, want an error that names it and says what to do", err)
			}
			if _, err := cms.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "garbage"}}, metav1.UpdateOptions{}); err == nil {
				t.Error("update: it was written over, want an error")
			}
			if err := cms.Delete(t.Context(), "garbage", metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete: %v", err)
			}
			if _, err := cms.Get(t.Context(), "garbage", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get after the deletion: %v, want that it is not found", err)
			}
			if _, err := cms.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "garbage"}}, metav1.CreateOptions{}); err != nil {
				t.Errorf("create after the deletion: %v", err)
			}
		})
	}
}

func has(list *corev1.ConfigMapList, name string) bool {
	for _, c := range list.Items {
		if c.Name == name {
			return true
		}
	}
	return false
}

const blobs = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"blobs.example.com"},
	"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"blobs","kind":"Blob"},"versions":[{"name":"v1","served":true,"storage":true,
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// TestLarge: an object that takes more than 1.5 MiB is refused as too large. One
// that is there already can be read, made smaller and deleted.
func TestLarge(t *testing.T) {
	t.Parallel()
	for name, s := range storages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage, raw := keep(t, s)
			_, objects := serve(t, storage)
			crds := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
			definition := &unstructured.Unstructured{}
			if err := definition.UnmarshalJSON([]byte(blobs)); err != nil {
				t.Fatal(err)
			}
			if _, err := crds.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			served := objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "blobs"})
			await(t, func() error {
				_, err := served.List(t.Context(), metav1.ListOptions{})
				return err
			})
			if _, err := served.Create(t.Context(), blob("fits", 3<<19-4096), metav1.CreateOptions{}); err != nil {
				t.Errorf("just below the limit: %v", err)
			}
			if _, err := served.Create(t.Context(), blob("large", 3<<19), metav1.CreateOptions{}); !apierrors.IsRequestEntityTooLargeError(err) {
				t.Errorf("above the limit: %v, want that it is too large", err)
			}
			for _, name := range []string{"shrinks", "goes"} {
				body, err := blob(name, 2<<20).MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := raw.Txn(t.Context()).Then(clientv3.OpPut("/registry/example.com/blobs/"+name, string(body))).Commit(); err != nil {
					t.Fatal(err)
				}
			}
			if found, err := served.Get(t.Context(), "shrinks", metav1.GetOptions{}); err != nil {
				t.Errorf("a large one is read: %v", err)
			} else if err := unstructured.SetNestedField(found.Object, "small", "data"); err != nil {
				t.Fatal(err)
			} else if _, err := served.Update(t.Context(), found, metav1.UpdateOptions{}); err != nil {
				t.Errorf("a large one is made smaller: %v", err)
			}
			if err := served.Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
				t.Errorf("a large one is deleted: %v", err)
			}
		})
	}
}

func blob(name string, size int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Blob", "data": strings.Repeat("x", size),
		"metadata": map[string]any{"name": name, "uid": fmt.Sprintf("00000000-0000-0000-0000-%012d", len(name)), "creationTimestamp": "2026-01-01T00:00:00Z"},
	}}
}

// await repeats what fails until it does not.
func await(t *testing.T, f func() error) {
	t.Helper()
	end := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-end:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
