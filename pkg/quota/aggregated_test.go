package quota_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// runServer runs a server until the test ends.
func runServer(t *testing.T, name string, parts ...controlplane.Part) *controlplane.Server {
	t.Helper()
	s, err := controlplane.New(name).Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s
}

// TestAggregated: a quota counts what another server keeps, and limits it where that server is
// guarded.
func TestAggregated(t *testing.T) {
	t.Parallel()
	const counted = corev1.ResourceName("count/apples.fruit.example.com")
	for name, guard := range map[string]bool{"counted": false, "guarded": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orchard := runServer(t, "orchard", apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples")))
			front := runServer(t, "front", core.Namespaces{}, quota.ResourceQuotas{}, aggregator.APIServices{
				Servers: []aggregator.Server{{Name: "shop/fruit", Handler: orchard.Handler(), Guard: guard}},
			})
			client, err := kubernetes.NewForConfig(front.ClientConfig())
			if err != nil {
				t.Fatal(err)
			}
			objects, err := dynamic.NewForConfig(front.ClientConfig())
			if err != nil {
				t.Fatal(err)
			}
			apples := objects.Resource(fruit.GroupVersion().WithResource("apples")).Namespace("default")
			_, err = client.CoreV1().ResourceQuotas("default").Create(t.Context(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "q"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("2")}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			used := func(want int64) {
				t.Helper()
				var got string
				for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					q, err := client.CoreV1().ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					n, known := q.Status.Used[counted]
					if got = fmt.Sprintf("%d, %t", n.Value(), known); known && n.Value() == want {
						return
					}
				}
				t.Errorf("%s: used is %s, want %d", name, got, want)
			}
			used(0)
			grow := func(name string) error {
				a := &unstructured.Unstructured{}
				a.SetGroupVersionKind(fruit.GroupVersion().WithKind("Apple"))
				a.SetName(name)
				_, err := apples.Create(t.Context(), a, metav1.CreateOptions{})
				return err
			}
			apply := func(name, color string) error {
				a := &unstructured.Unstructured{}
				a.SetGroupVersionKind(fruit.GroupVersion().WithKind("Apple"))
				a.SetName(name)
				a.SetLabels(map[string]string{"color": color})
				_, err := apples.Apply(t.Context(), name, a, metav1.ApplyOptions{FieldManager: "test"})
				return err
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // its server is found in a moment
				if err = grow("a"); err == nil || time.Now().After(end) {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := apply("b", "red"); err != nil {
				t.Fatal(err)
			}
			used(2)
			if !guard {
				if err := grow("c"); err != nil {
					t.Error(err)
				}
				used(3)
				return
			}
			for what, err := range map[string]error{"create": grow("c"), "apply": apply("c", "red")} {
				if !apierrors.IsForbidden(err) {
					t.Errorf("a %s over the limit: %v, want Forbidden", what, err)
				}
			}
			if err := apply("b", "green"); err != nil {
				t.Errorf("a change of what is there: %v", err)
			}
			if err := apples.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			used(1)
			if err := grow("c"); err != nil {
				t.Errorf("a create below the limit again: %v", err)
			}
		})
	}
}
