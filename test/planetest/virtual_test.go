package planetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// virtualTrees are the source of a virtual resource.
type virtualTrees struct {
	namespace string

	mu    sync.Mutex
	trees map[string]fruit.Apple
	err   error
}

// change changes what the source says, or has it fail.
func (o *virtualTrees) change(err error, trees ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.trees = err, map[string]fruit.Apple{}
	for _, name := range trees {
		o.trees[name] = fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}, Spec: fruit.AppleSpec{Variety: name}}
	}
}

func (o *virtualTrees) read(context.Context, apis.Query) ([]fruit.Apple, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.trees)), o.err
}

func (o *virtualTrees) group() *apis.Group {
	return apis.NewGroup(fruit.GroupVersion(), nil, nil,
		apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(10*time.Millisecond, o.read)))
}

// TestVirtualInformer has an informer keep up with a function that fails and comes back.
func TestVirtualInformer(t *testing.T) {
	t.Parallel()
	o := &virtualTrees{namespace: "default"}
	o.change(errors.New("frost"), "a")
	plane := planetest.Start(t, o.group())
	c, err := dynamic.NewForConfig(plane.Config())
	must(t, err)
	informers := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
	apples := informers.ForResource(schema.GroupVersionResource{Group: "fruit.example.com", Version: "v1", Resource: "apples"})
	changed := make(chan struct{}, 1000)
	_, err = apples.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed <- struct{}{} },
		UpdateFunc: func(any, any) { changed <- struct{}{} },
		DeleteFunc: func(any) { changed <- struct{}{} },
	})
	must(t, err)
	informers.Start(t.Context().Done())
	t.Cleanup(informers.Shutdown)
	for _, step := range []struct {
		err   error
		trees []string
	}{
		{nil, []string{"a", "b"}},
		{errors.New("frost"), nil},
		{nil, []string{"b", "c"}},
		{nil, nil},
	} {
		o.change(step.err, step.trees...)
		if step.err != nil {
			continue
		}
		for end := time.After(time.Minute); ; {
			got := apples.Informer().GetStore().ListKeys()
			slices.Sort(got)
			var want []string
			for _, name := range step.trees {
				want = append(want, "default/"+name)
			}
			if slices.Equal(got, want) {
				break
			}
			select {
			case <-changed:
			case <-end:
				t.Fatalf("the informer has %v after a minute, want %v", got, want)
			}
		}
	}
}

// appleTypes are those of the group, for a typed client.
func appleTypes() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(fruit.GroupVersion(), &fruit.Apple{}, &fruit.AppleList{})
	metav1.AddToGroupVersion(s, fruit.GroupVersion())
	_ = corev1.AddToScheme(s) // it never fails
	return s
}

// TestVirtualController has a controller act on what a function makes, before and after it failed.
func TestVirtualController(t *testing.T) {
	t.Parallel()
	o := &virtualTrees{namespace: "default"}
	o.change(nil, "boskoop")
	plane := planetest.Start(t, o.group())
	unique := true
	m, err := controllerruntime.NewManager(plane.Config(), controllerruntime.Options{
		Scheme: appleTypes(), Metrics: metrics.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &unique},
	})
	must(t, err)
	c := m.GetClient()
	must(t, controllerruntime.NewControllerManagedBy(m).For(&fruit.Apple{}).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			label := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
			apple := &fruit.Apple{}
			if err := c.Get(ctx, req.NamespacedName, apple); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(c.Delete(ctx, label))
			}
			_, err := controllerutil.CreateOrUpdate(ctx, c, label, func() error {
				label.Data = map[string]string{"variety": apple.Spec.Variety}
				return nil
			})
			return reconcile.Result{}, err
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
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "default/boskoop"), planetest.JSONPath(".data.variety", "boskoop"))
	o.change(errors.New("frost"))
	if _, err := o.read(t.Context(), apis.Query{}); err == nil {
		t.Fatal("the source does not fail")
	}
	o.change(nil, "elstar")
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "default/elstar"), planetest.JSONPath(".data.variety", "elstar"))
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "default/boskoop"), planetest.Gone())
}

// TestVirtualNamespace: what a function makes keeps no namespace, and can be an owner.
func TestVirtualNamespace(t *testing.T) {
	t.Parallel()
	o := &virtualTrees{namespace: "garden"}
	o.change(nil, "boskoop")
	plane := planetest.Start(t, o.group())
	plane.Apply(t, planetest.YAML("{apiVersion: v1, kind: Namespace, metadata: {name: garden}}"))
	owned := func(name, owner string, uid types.UID) {
		t.Helper()
		_, err := plane.Client().CoreV1().ConfigMaps("garden").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "fruit.example.com/v1", Kind: "Apple", Name: owner, UID: uid},
			},
		}}, metav1.CreateOptions{})
		must(t, err)
	}
	c, err := dynamic.NewForConfig(plane.Config())
	must(t, err)
	apples := schema.GroupVersionResource{Group: "fruit.example.com", Version: "v1", Resource: "apples"}
	apple, err := c.Resource(apples).Namespace("garden").Get(t.Context(), "boskoop", metav1.GetOptions{})
	must(t, err)
	owned("kept", "boskoop", apple.GetUID())
	owned("dropped", "elstar", "none")
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "garden/dropped"), planetest.Gone())
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "garden/kept"), planetest.Exists())

	must(t, plane.Client().CoreV1().Namespaces().Delete(t.Context(), "garden", metav1.DeleteOptions{}))
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "garden/kept"), planetest.Gone())
}
