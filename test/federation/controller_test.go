package federation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// keeper keeps a ConfigMap of the front and a flunder of sample-apiserver for each widget of a
// third server, and says in the widget's status that it did.
type keeper struct{ client.Client }

func object(group, version, kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return o
}

func newWidget() *unstructured.Unstructured  { return object("example.com", "v1", "Widget") }
func newFlunder() *unstructured.Unstructured { return object(wardle, "v1alpha1", "Flunder") }

func (k *keeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	w := newWidget()
	if err := k.Get(ctx, request.NamespacedName, w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
	label := map[string]string{"size": strconv.FormatInt(size, 10)}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.GetNamespace(), Name: w.GetName()}}
	flunder := newFlunder()
	flunder.SetNamespace(w.GetNamespace())
	flunder.SetName(w.GetName())
	_, first := controllerutil.CreateOrUpdate(ctx, k.Client, configMap, func() error {
		configMap.Data = label
		return nil
	})
	_, second := controllerutil.CreateOrUpdate(ctx, k.Client, flunder, func() error {
		flunder.SetLabels(label)
		return unstructured.SetNestedField(flunder.Object, w.GetName(), "spec", "reference")
	})
	if err := errors.Join(first, second); err != nil {
		return reconcile.Result{}, err
	}
	before := w.DeepCopy()
	if err := unstructured.SetNestedField(w.Object, "Kept-"+label["size"], "status", "phase"); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, k.Status().Patch(ctx, w, client.MergeFrom(before))
}

// startNorth has a server of Sailplane with widgets behind a front.
func startNorth(t *testing.T, f *front) *behind.Server {
	t.Helper()
	authority := filepath.Join(t.TempDir(), "front-proxy.crt")
	text := f.kubectl(t, "", "get configmap extension-apiserver-authentication -n kube-system -o jsonpath={.data.requestheader-client-ca-file}")
	must(t, os.WriteFile(authority, []byte(text), 0o600))
	crds, err := filepath.Abs(filepath.Join("..", "..", "config", "samples"))
	must(t, err)
	s, err := behind.NewSailplane("north", t.TempDir(), crds, authority)
	must(t, err)
	s.Announce = func(context.Context) error {
		_, err := f.Try(s.APIService("example.com", "v1"), "apply", "-f", "-")
		return err
	}
	run(t, s)
	f.kubectl(t, "", "wait apiservice/v1.example.com --timeout=120s --for=condition=Available", "condition met")
	return s
}

// manage runs a manager with the controller until the test ends. It knows the front only.
func manage(t *testing.T, f *front) {
	t.Helper()
	controllerruntime.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	must(t, err)
	m, err := controllerruntime.NewManager(config, controllerruntime.Options{
		Metrics: metrics.Options{BindAddress: "0"}, Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	must(t, err)
	same := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	})
	must(t, controllerruntime.NewControllerManagedBy(m).For(newWidget()).Watches(&corev1.ConfigMap{}, same).
		Watches(newFlunder(), same).Complete(&keeper{m.GetClient()}))
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

func widget(name string, size int) string {
	return fmt.Sprintf("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: %s, namespace: default}\nspec: {size: %d}\n", name, size)
}

// TestController: a controller works on the groups of three servers as if they were of one, also
// after one of them was away.
func TestController(t *testing.T) {
	t.Parallel()
	f := serve(t)
	north, s := startNorth(t, f), startSample(t, f)
	s.becomes(t, "True")
	manage(t, f)
	kept := func(name, size string) {
		t.Helper()
		for args, want := range map[string]string{
			"get widget " + name + " -o jsonpath={.status.phase}":       "Kept-" + size,
			"get configmap " + name + " -o jsonpath={.data.size}":       size,
			"get flunder " + name + " -o jsonpath={.metadata.labels.*}": size,
		} {
			until(t, args, func() error {
				out, err := f.Try("", strings.Fields(args)...)
				if err == nil && out != want {
					err = fmt.Errorf("it is %q, want %q", out, want)
				}
				return err
			})
		}
	}
	f.kubectl(t, widget("lever", 1), "create -f -")
	kept("lever", "1")
	f.kubectl(t, widget("lever", 2), "apply --server-side --force-conflicts -f -")
	kept("lever", "2")
	f.kubectl(t, "", "delete configmap lever")
	f.kubectl(t, "", "delete flunder lever")
	kept("lever", "2")

	// Without sample-apiserver it does what it can, and the rest when that is back.
	s.Kill()
	s.becomes(t, "False")
	f.kubectl(t, widget("wheel", 3), "create -f -")
	until(t, "the ConfigMap of a widget, while a server is away", func() error {
		_, err := f.Try("", "get", "configmap", "wheel")
		return err
	})
	must(t, s.Run())
	kept("wheel", "3")

	// The server whose objects it follows comes back with what it had, and changes arrive.
	north.Kill()
	f.kubectl(t, "", "wait apiservice/v1.example.com --timeout=120s --for=condition=Available=false", "condition met")
	f.kubectl(t, "", "delete configmap wheel")
	must(t, north.Run())
	f.kubectl(t, "", "wait apiservice/v1.example.com --timeout=120s --for=condition=Available", "condition met")
	f.kubectl(t, widget("lever", 4), "apply --server-side --force-conflicts -f -")
	kept("lever", "4")
	kept("wheel", "3")
}
