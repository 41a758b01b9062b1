package planetest

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

func TestMain(m *testing.M) {
	controllerruntime.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func widgets() controlplane.Part { return planetest.WithCRDs(os.DirFS("../../config/samples")) }

func newWidget() *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	return w
}

const lever = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: lever}
spec: {size: 42}
`

// labeller makes a ConfigMap for each widget, and says in the widget's status that it did.
type labeller struct{ client.Client }

func (l *labeller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w := newWidget()
	if err := l.Get(ctx, req.NamespacedName, w); err != nil || w.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
	label := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, l.Client, label, func() error {
		label.Data = map[string]string{"size": strconv.FormatInt(size, 10)}
		return controllerutil.SetControllerReference(w, label, l.Scheme())
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	before := w.DeepCopy()
	if err := unstructured.SetNestedField(w.Object, "Labelled", "status", "phase"); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, l.Status().Patch(ctx, w, client.MergeFrom(before))
}

// manage runs a manager with the controller until the test ends.
func manage(t *testing.T, c *rest.Config) manager.Manager {
	t.Helper()
	unique := true // the same controller runs in many tests of this process
	m, err := controllerruntime.NewManager(c, controllerruntime.Options{
		Metrics: metrics.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &unique},
	})
	must(t, err)
	must(t, controllerruntime.NewControllerManagedBy(m).For(newWidget()).Owns(&corev1.ConfigMap{}).Complete(&labeller{m.GetClient()}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	return m
}

// TestReconciler has a controller work in a plane: it acts, undoes what others do,
// and what it made goes with its owner.
func TestReconciler(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t, widgets())
	manage(t, plane.Config())
	plane.Apply(t, planetest.YAML(lever))
	label := planetest.Object("v1", "ConfigMap", "default/lever")
	plane.WaitFor(t, planetest.Object("example.com/v1", "Widget", "default/lever"), planetest.JSONPath(".status.phase", "Labelled"))
	plane.WaitFor(t, label, planetest.JSONPath(".data.size", "42"))

	maps := plane.Client().CoreV1().ConfigMaps("default")
	must(t, maps.Delete(t.Context(), "lever", metav1.DeleteOptions{}))
	plane.WaitFor(t, label, planetest.Exists())
	plane.In("default").Golden(t, "testdata/reconciled.yaml")

	must(t, plane.Dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).
		Namespace("default").Delete(t.Context(), "lever", metav1.DeleteOptions{}))
	plane.WaitFor(t, label, planetest.Gone())
}

// TestCache: a test that waited for the cache finds what it wrote in it.
func TestCache(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t, widgets())
	m := manage(t, plane.Config())
	ctx := t.Context()
	informer, err := m.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
	must(t, err)
	direct, err := client.New(plane.Config(), client.Options{})
	must(t, err)
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}
	must(t, direct.Create(ctx, written))
	cached := func() (metav1.Object, error) {
		got := &corev1.ConfigMap{}
		return got, m.GetClient().Get(ctx, client.ObjectKeyFromObject(written), got)
	}
	for range 10 {
		written.Data = map[string]string{"version": written.ResourceVersion}
		must(t, direct.Update(ctx, written))
		plane.Seen(t, informer, written)
		if got, err := cached(); err != nil || got.GetResourceVersion() != written.ResourceVersion {
			t.Errorf("the cache has %v (%v), want %s", got.GetResourceVersion(), err, written.ResourceVersion)
		}
		written.Labels = map[string]string{"version": written.ResourceVersion}
		must(t, direct.Update(ctx, written))
		plane.SeenBy(t, written, cached)
	}
	must(t, direct.Delete(ctx, written))
	plane.Forgotten(t, informer, written)
	if _, err := cached(); !apierrors.IsNotFound(err) {
		t.Errorf("the cache has what was deleted: %v", err)
	}
}

// TestNamespaces: tests that share a plane have a namespace each, which goes with them.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t, widgets())
	manage(t, plane.Config())
	var names sync.Map
	t.Run("all", func(t *testing.T) {
		for _, name := range []string{"one", "two", "three"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := plane.Namespace(t)
				names.Store(ns, nil)
				plane.In(ns).Apply(t, planetest.YAML(lever))
				plane.In(ns).WaitFor(t, planetest.Object("v1", "ConfigMap", "lever"), planetest.Exists())
				plane.In(ns).WaitFor(t, planetest.Object("example.com/v1", "Widget", "lever"), planetest.JSONPath(".status.phase", "Labelled"))
				plane.In(ns).Golden(t, "testdata/reconciled.yaml")
			})
		}
	})
	names.Range(func(ns, _ any) bool {
		plane.WaitFor(t, planetest.Object("v1", "Namespace", ns.(string)), planetest.Gone())
		return true
	})
}

// TestRights: what a controller's account may do is tested as that account.
func TestRights(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t, widgets())
	plane.Apply(t, planetest.YAML(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: labeller}
rules:
- {apiGroups: [example.com], resources: [widgets], verbs: [get, list, watch]}
- {apiGroups: [example.com], resources: [widgets/status], verbs: [patch]}
- {apiGroups: [example.com], resources: [widgets/finalizers], verbs: [update]} # for owner references that block
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: labeller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: labeller}
subjects: [{kind: ServiceAccount, namespace: default, name: labeller}]
`))
	account := plane.As("system:serviceaccount:default:labeller")
	plane.Eventually(t, func(ctx context.Context) error {
		_, err := account.Client().CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		return err
	})
	manage(t, account.Config())
	plane.Apply(t, planetest.YAML(lever))
	plane.WaitFor(t, planetest.Object("example.com/v1", "Widget", "lever"), planetest.JSONPath(".status.phase", "Labelled"))
	direct, err := client.New(account.Config(), client.Options{})
	must(t, err)
	if err := direct.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}); !apierrors.IsForbidden(err) {
		t.Errorf("the account makes secrets: %v", err)
	}
}

// TestOutside: a manager that knows the plane by a kubeconfig only works too.
func TestOutside(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{Kubeconfig: true}.Start(t, widgets())
	c, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	must(t, err)
	manage(t, c)
	plane.Apply(t, planetest.YAML(lever))
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "lever"), planetest.Exists())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
