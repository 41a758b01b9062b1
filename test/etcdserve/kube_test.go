//go:build unix

package etcdserve

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// TestKubeAPIServer has a kube-apiserver on a storage that is served as an etcd: what it promises of
// objects holds, and goes on holding when either process ends.
func TestKubeAPIServer(t *testing.T) {
	t.Parallel()
	for name, storage := range map[string]func(*testing.T) storage{"sqlite": sqlite, "postgres": postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, storage(t), address(t))
			s := run(t, e)
			kept := keep(t, s)
			t.Run("objects", func(t *testing.T) {
				for name, test := range map[string]func(*testing.T, *server){
					"custom resources": customResources,
					"namespaces":       namespaces,
					"leases":           leases,
					"events":           events,
					"pages":            func(t *testing.T, s *server) { pages(t, s, "pages") },
					"resumed watches":  resumedWatches,
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(t, s)
					})
				}
			})
			for name, end := range map[string]func(*endpoint, *testing.T){"the endpoint stops": (*endpoint).stop, "the endpoint is killed": (*endpoint).kill} {
				t.Run(name, func(t *testing.T) { interrupted(t, s, e, end) })
			}
			before := s.objects(t)
			t.Run("kube-apiserver restarts", func(t *testing.T) {
				s.restart(t)
				if diff := cmp.Diff(before, s.objects(t)); diff != "" {
					t.Errorf("objects after a restart (-before +after):\n%s", diff)
				}
				kept.check(t, s)
			})
			// Most reads above came from the memory of kube-apiserver. Without it, they come from the storage.
			t.Run("kube-apiserver restarts without a cache", func(t *testing.T) {
				s.restart(t, "--watch-cache=false")
				if diff := cmp.Diff(before, s.objects(t)); diff != "" {
					t.Errorf("objects without a cache (-before +after):\n%s", diff)
				}
				kept.check(t, s)
				kept.replay(t, s)
				pages(t, s, "pages-uncached")
				resumedWatches(t, s)
			})
		})
	}
}

// objects returns the resource versions of all objects that no kube-apiserver changes by itself.
func (s *server) objects(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, kind := range kinds() {
		list, err := s.dynamic.Resource(kind).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, o := range list.Items {
			if o.GetNamespace() != metav1.NamespaceSystem { // where it has a lease
				all[fmt.Sprintf("%s %s/%s %s", kind.Resource, o.GetNamespace(), o.GetName(), o.GetUID())] = o.GetResourceVersion()
			}
		}
	}
	return all
}

// history is a namespace with the changes that a watch saw in it.
type history struct {
	from    string
	changes []change
}

const historic = "history"

// keep makes changes, and returns what a watch saw of them.
func keep(t *testing.T, s *server) *history {
	t.Helper()
	c := s.namespace(t, historic)
	_, from := listed(t, c)
	f := follow(t, c, from)
	made, err := write(t.Context(), c, "old", 20)
	must(t, err)
	made = append(made, finish(t, c))
	h := &history{from: from, changes: f.seen(t)}
	if diff := equal(made, h.changes); diff != "" {
		t.Errorf("changes seen by a watch (-made +seen):\n%s", diff)
	}
	return h
}

// check compares the objects to the changes.
func (h *history) check(t *testing.T, s *server) {
	t.Helper()
	got, _ := listed(t, s.dynamic.Resource(configMaps()).Namespace(historic))
	if diff := cmp.Diff(replayed(map[string]string{}, h.changes), got); diff != "" {
		t.Errorf("objects of a namespace (-changes +list):\n%s", diff)
	}
}

// replay has a watch from the old resource version see the same changes again.
func (h *history) replay(t *testing.T, s *server) {
	t.Helper()
	f := follow(t, s.dynamic.Resource(configMaps()).Namespace(historic), h.from)
	if diff := cmp.Diff(h.changes, f.seen(t), cmp.AllowUnexported(change{})); diff != "" {
		t.Errorf("changes seen again (-first +again):\n%s", diff)
	}
}

// namespace makes a namespace, and returns the client of its ConfigMaps.
func (s *server) namespace(t *testing.T, name string) dynamic.ResourceInterface {
	t.Helper()
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	return s.dynamic.Resource(configMaps()).Namespace(name)
}
