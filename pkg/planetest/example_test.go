package planetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// A plane with a project's CRDs, and an object of one.
func ExampleStart() {
	t, end := newExample("ExampleStart")
	defer end()

	plane := planetest.Start(t, planetest.WithCRDs(os.DirFS("../../config/samples")))
	lever := plane.Apply(t, planetest.YAML(`
apiVersion: example.com/v1
kind: Widget
metadata: {name: lever}
spec: {size: 42}
`))[0]
	fmt.Println(lever.GetNamespace(), lever.Object["spec"])
	// Output: default map[colour:green size:42]
}

// A plane of few parts starts faster.
func ExampleOptions() {
	t, end := newExample("ExampleOptions")
	defer end()

	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces())
	_, err := plane.Client().AppsV1().Deployments("default").List(context.Background(), metav1.ListOptions{})
	fmt.Println(apierrors.IsNotFound(err))
	// Output: true
}

// WaitFor watches an object until checks hold.
func ExamplePlane_WaitFor() {
	t, end := newExample("ExamplePlane_WaitFor")
	defer end()

	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces())
	plane.WaitFor(t, planetest.Object("v1", "Namespace", "default"), planetest.JSONPath(".status.phase", "Active"))
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "default/missing"), planetest.Gone())
	fmt.Println("done")
	// Output: done
}

// Eventually looks again whenever something in the plane changes.
func ExamplePlane_Eventually() {
	t, end := newExample("ExamplePlane_Eventually")
	defer end()

	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces())
	maps := plane.Client().CoreV1().ConfigMaps("default")
	go func() { // a controller
		_, _ = maps.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
	}()
	plane.Eventually(t, func(ctx context.Context) error {
		_, err := maps.Get(ctx, "made", metav1.GetOptions{})
		return err
	})
	plane.Consistently(t, 20*time.Millisecond, func(ctx context.Context) error {
		all, err := maps.List(ctx, metav1.ListOptions{})
		if err == nil && len(all.Items) != 1 {
			err = errors.New("there is more than one")
		}
		return err
	})
	fmt.Println("made, once")
	// Output: made, once
}

// Seen has a test go on when a cache has what the test wrote.
func ExamplePlane_Seen() {
	t, end := newExample("ExamplePlane_Seen")
	defer end()

	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces())
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(plane.Client(), 0)
	informer := factory.Core().V1().ConfigMaps()
	maps := informer.Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()

	written, err := plane.Client().CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	plane.Seen(t, maps, written)
	cached, err := informer.Lister().ConfigMaps("default").Get("x")
	fmt.Println(cached.Name, err)
	// Output: x <nil>
}

// As asks as somebody else, who may do what the roles in the plane allow.
func ExamplePlane_As() {
	t, end := newExample("ExamplePlane_As")
	defer end()

	plane := planetest.Start(t)
	jane := plane.As("jane", "developers")
	_, err := jane.Client().CoreV1().Secrets("default").List(context.Background(), metav1.ListOptions{})
	fmt.Println(err)
	// Output: secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace "default"
}

// Snapshots show what a step of a test did.
func ExampleSnapshot_Diff() {
	t, end := newExample("ExampleSnapshot_Diff")
	defer end()

	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces())
	before := plane.Snapshot(t)
	plane.Apply(t, planetest.YAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {colour: red}}`))
	between := plane.Snapshot(t)
	plane.Apply(t, planetest.YAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {colour: blue}}`))
	fmt.Println(strings.Join(plane.Content(t).Names(), "\n"))
	fmt.Print(before.Diff(between))
	fmt.Print(between.Diff(plane.Snapshot(t)))
	// Output:
	// ConfigMap default/x (v1)
	// + ConfigMap default/x (v1)
	//     + apiVersion: v1
	//     + data:
	//     +   colour: red
	//     + kind: ConfigMap
	//     + metadata:
	//     +   name: x
	//     +   namespace: default
	// ~ ConfigMap default/x (v1)
	//       apiVersion: v1
	//       data:
	//     -   colour: red
	//     +   colour: blue
	//       kind: ConfigMap
	//       metadata:
	//         name: x
}

// The tests of a package share a plane and have a namespace each:
//
//	var plane *planetest.Plane
//
//	func TestMain(m *testing.M) { os.Exit(planetest.Main(m, &plane)) }
//
//	func TestSomething(t *testing.T) {
//		ns := plane.Namespace(t)
//		...
//	}
func ExampleMain() {
	var plane *planetest.Plane
	m := tests(func() int { // stands for *testing.M
		t, end := newExample("TestSomething")
		defer end()
		ns := plane.Namespace(t)
		applied := plane.In(ns).Apply(t, planetest.YAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}`))
		fmt.Println(strings.HasPrefix(applied[0].GetNamespace(), "testsomething-"))
		return 0
	})
	fmt.Println(planetest.Options{NoDefaults: true}.Main(m, &plane, namespaces()))
	// Output:
	// true
	// 0
}

// example stands for the *testing.T that a test gets, or GinkgoT(): it cleans up when
// the example returns.
type example struct {
	name string

	mu       sync.Mutex // planes may start at once
	cleanups []func()
}

func newExample(name string) (t *example, end func()) {
	e := &example{name: name}
	return e, func() {
		for i := len(e.cleanups) - 1; i >= 0; i-- {
			e.cleanups[i]()
		}
	}
}

func (e *example) Cleanup(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cleanups = append(e.cleanups, f)
}

func (e *example) Name() string              { return e.name }
func (e *example) Helper()                   {}
func (e *example) Logf(string, ...any)       {}
func (e *example) Errorf(f string, a ...any) { fmt.Printf(f+"\n", a...) }
func (e *example) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (e *example) TempDir() string           { return os.TempDir() }
