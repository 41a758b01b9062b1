package projections

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

func TestMain(m *testing.M) {
	controllerruntime.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// ripen runs a controller that makes the apples of a plane ripe, until the test ends.
func ripen(t *testing.T, p *planetest.Plane) {
	t.Helper()
	unique := true // the same controller may run in many tests of this process
	m, err := controllerruntime.NewManager(p.Config(), controllerruntime.Options{
		Metrics: metrics.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &unique},
	})
	must(t, err)
	c := m.GetClient()
	must(t, controllerruntime.NewControllerManagedBy(m).For(apple("", "")).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			a := apple("", "")
			if err := c.Get(ctx, req.NamespacedName, a); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			before := a.DeepCopy()
			if err := unstructured.SetNestedField(a.Object, true, "status", "ripe"); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, c.Status().Patch(ctx, a, client.MergeFrom(before))
		})))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
}

// TestController: a controller acts on a view of another server's resource, so that what is below
// changes, and goes on after that server was away. What is not shown it leaves alone.
func TestController(t *testing.T) {
	t.Parallel()
	g := newGarden(t)
	below := g.trees(g.start())
	t.Cleanup(func() { g.stop() })
	p := planetest.Start(t, view(g.over()))
	ripen(t, p)
	ripens := func(below dynamic.ResourceInterface, name string) {
		t.Helper()
		p.Eventually(t, func(ctx context.Context) error {
			tree, err := below.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if ripe, _, _ := unstructured.NestedBool(tree.Object, "status", "ripe"); !ripe {
				return fmt.Errorf("the tree %s is not ripe: %v", name, tree.Object)
			}
			return nil
		})
	}
	create(t, below, tree("hidden", true))
	create(t, below, tree("first", false))
	ripens(below, "first")

	g.stop()
	if _, err := in(p, "default", apples).List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without the server below a list is answered with %v", err)
	}
	below = g.trees(g.start())
	create(t, below, tree("second", false))
	ripens(below, "second")
	create(t, in(p, "default", apples), apple("third", "Gala"))
	ripens(below, "third")
	hidden, err := below.Get(t.Context(), "hidden", metav1.GetOptions{})
	must(t, err)
	if _, found, _ := unstructured.NestedBool(hidden.Object, "status", "ripe"); found {
		t.Errorf("the controller changed what is not shown: %v", hidden.Object)
	}
}
