package planetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	_ "modernc.org/sqlite" // the driver

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/sqltable"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// keeper is one that fails when it is told to.
type keeper struct {
	keep.Keeper[fruit.Apple]

	mu     sync.Mutex
	err    error
	failed chan struct{} // gets something when a call failed
}

func (k *keeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *keeper) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		select {
		case k.failed <- struct{}{}:
		default:
		}
	}
	return k.err
}

func (k *keeper) Get(ctx context.Context, key keep.Key) (keep.Item[fruit.Apple], error) {
	if err := k.failure(); err != nil {
		return keep.Item[fruit.Apple]{}, err
	}
	return k.Keeper.Get(ctx, key)
}

func (k *keeper) List(ctx context.Context, r keep.Range) (keep.Page[fruit.Apple], error) {
	if err := k.failure(); err != nil {
		return keep.Page[fruit.Apple]{}, err
	}
	return k.Keeper.List(ctx, r)
}

func (k *keeper) Changes(ctx context.Context, since int64) (keep.Batch[fruit.Apple], error) {
	if err := k.failure(); err != nil {
		return keep.Batch[fruit.Apple]{}, err
	}
	return k.Keeper.Changes(ctx, since)
}

// orchard is a table of apples, and the part that serves it.
func orchard(t *testing.T) (*sql.DB, *keeper, controlplane.Part) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "orchard.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	k := &keeper{failed: make(chan struct{}, 1), Keeper: &sqltable.Table[fruit.Apple]{DB: db, Name: "apples", Columns: []sqltable.Column{
		{Name: "variety", Path: "spec.variety"}, {Name: "ripe", Path: "status.ripe"},
	}}}
	return db, k, apis.NewGroup(fruit.GroupVersion(), nil, nil,
		apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Kept(k), apis.Status()))
}

// sun makes apples ripe.
type sun struct{ client.Client }

func apple() *unstructured.Unstructured {
	a := &unstructured.Unstructured{}
	a.SetGroupVersionKind(fruit.GroupVersion().WithKind("Apple"))
	return a
}

func (s *sun) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	a := apple()
	if err := s.Get(ctx, req.NamespacedName, a); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := a.DeepCopy()
	if err := unstructured.SetNestedField(a.Object, true, "status", "ripe"); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, s.Status().Patch(ctx, a, client.MergeFrom(before))
}

// TestControllerOfRows: a controller works on the rows of a table, those that other programs write
// too, and goes on after the table was away.
func TestControllerOfRows(t *testing.T) {
	t.Parallel()
	db, k, part := orchard(t)
	plane := planetest.Start(t, part)
	unique := true // the same controller runs in many tests of this process
	m, err := controllerruntime.NewManager(plane.Config(), controllerruntime.Options{
		Metrics: metrics.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &unique},
	})
	must(t, err)
	must(t, controllerruntime.NewControllerManagedBy(m).For(apple()).Complete(&sun{m.GetClient()}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)

	insert := func(name string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), `INSERT INTO apples (namespace, name, variety) VALUES ('default', ?, 'cox')`, name)
		must(t, err)
	}
	ripens := func(name string) {
		t.Helper()
		plane.WaitFor(t, planetest.Object("fruit.example.com/v1", "Apple", "default/"+name), planetest.JSONPath(".status.ripe", "true"))
	}
	plane.Apply(t, planetest.YAML("apiVersion: fruit.example.com/v1\nkind: Apple\nmetadata: {name: a}\nspec: {variety: cox}\n"))
	ripens("a")
	insert("b")
	ripens("b")
	k.fail(errors.New("the table is away"))
	<-k.failed // the watch has noticed
	insert("c")
	k.fail(nil)
	ripens("c")
	var ripe int
	must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM apples WHERE ripe`).Scan(&ripe))
	if ripe != 3 {
		t.Errorf("%d rows are ripe, want 3", ripe)
	}
}

// TestInformerOfRows: an informer begins when the table is there, and has what other programs did
// while the table was away.
func TestInformerOfRows(t *testing.T) {
	t.Parallel()
	db, k, part := orchard(t)
	plane := planetest.Start(t, part)
	plane.Apply(t, planetest.YAML("apiVersion: fruit.example.com/v1\nkind: Apple\nmetadata: {name: a}\nspec: {variety: cox}\n"))
	frost := errors.New("the table is away")
	k.fail(frost)
	ctx, cancel := context.WithCancel(t.Context())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(plane.Dynamic(), 0)
	defer factory.Shutdown()
	defer cancel()
	informer := factory.ForResource(fruit.GroupVersion().WithResource("apples")).Informer()
	factory.Start(ctx.Done())
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	has := func(want map[string]string) {
		t.Helper()
		plane.Eventually(t, func(context.Context) error {
			got := map[string]string{}
			for _, o := range informer.GetStore().List() {
				a := o.(*unstructured.Unstructured)
				got[a.GetName()], _, _ = unstructured.NestedString(a.Object, "spec", "variety")
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("the informer has %v, want %v", got, want)
			}
			return nil
		})
	}
	<-k.failed // it asked in vain
	k.fail(nil)
	has(map[string]string{"a": "cox"})
	exec(`INSERT INTO apples (namespace, name, variety) VALUES ('default', 'b', 'cox')`)
	has(map[string]string{"a": "cox", "b": "cox"})
	k.fail(frost)
	<-k.failed // the watch has noticed
	exec(`INSERT INTO apples (namespace, name, variety) VALUES ('default', 'c', 'cox')`)
	exec(`UPDATE apples SET variety = 'elstar' WHERE name = 'b'`)
	exec(`DELETE FROM apples WHERE name = 'a'`)
	k.fail(nil)
	has(map[string]string{"b": "elstar", "c": "cox"})
}

// TestNamespaceOfRows: a namespace that is deleted is emptied of rows, and the garbage collector
// leaves those alone whose owner is gone.
func TestNamespaceOfRows(t *testing.T) {
	t.Parallel()
	db, _, part := orchard(t)
	plane := planetest.Start(t, part)
	plane.Apply(t, planetest.YAML("apiVersion: v1\nkind: Namespace\nmetadata: {name: garden}\n"))
	owner := plane.Apply(t, planetest.YAML("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owner}\n"))[0]
	owned := apple()
	owned.SetNamespace("default")
	owned.SetName("owned")
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.GetUID()}})
	in := apple()
	in.SetNamespace("garden")
	in.SetName("in")
	c, err := client.New(plane.Config(), client.Options{})
	must(t, err)
	must(t, c.Create(t.Context(), owned))
	must(t, c.Create(t.Context(), in))
	must(t, c.Delete(t.Context(), owner))
	must(t, plane.Client().CoreV1().Namespaces().Delete(t.Context(), "garden", metav1.DeleteOptions{}))
	plane.WaitFor(t, planetest.Object("v1", "Namespace", "garden"), planetest.Gone())
	var left int
	must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM apples WHERE namespace = 'garden'`).Scan(&left))
	if left != 0 {
		t.Errorf("%d rows are left of the namespace", left)
	}
	must(t, c.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "owned"}, apple()))
}
