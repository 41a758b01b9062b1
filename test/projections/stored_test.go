package projections

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// TestOverStored: what is stored as the Go type that a view publishes is read without a request.
func TestOverStored(t *testing.T) {
	t.Parallel()
	var reads, writes atomic.Int64
	count := middleware.Wrap("count", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/trees") {
				if r.Method == http.MethodGet {
					reads.Add(1)
				} else {
					writes.Add(1)
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	same := func(from, to *fruit.Apple) { to.Spec, to.Status = from.Spec, from.Status }
	p := planetest.Start(t, count,
		apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Project[fruit.Apple, fruit.AppleList]("apples",
			apis.Over("garden.example.com/v1", "trees"),
			func(tree, a *fruit.Apple) bool { same(tree, a); return true },
			func(a, tree *fruit.Apple) error { same(a, tree); return nil })),
		apis.NewGroup(trees.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("trees", apis.Kind("Tree"))))
	create(t, in(p, "default", apples), apple("gala", "Gala"))
	list, err := in(p, "default", apples).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	w, err := in(p, "default", apples).Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer w.Stop()
	if e := <-w.ResultChan(); len(list.Items) != 1 || e.Type != "ADDED" {
		t.Errorf("listed %v, watched %v", list.Items, e)
	}
	if reads.Load() != 0 || writes.Load() != 1 {
		t.Errorf("the trees were read by %d requests and written by %d, want 0 and 1", reads.Load(), writes.Load())
	}
}
