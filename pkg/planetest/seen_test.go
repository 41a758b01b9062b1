package planetest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// TestSeen: a cache that was waited for has what was written, and not what was deleted.
func TestSeen(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true}.Start(t, few())
	ctx := t.Context()
	maps := plane.Client().CoreV1().ConfigMaps("default")
	factory := informers.NewSharedInformerFactory(plane.Client(), 0)
	informer := factory.Core().V1().ConfigMaps()
	shared, lister := informer.Informer(), informer.Lister().ConfigMaps("default")
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	must(t, err)
	impatient(t, plane, func(t planetest.TB, plane *planetest.Plane) { plane.Seen(t, shared, made) }, "default/x", "has not synced")

	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	for range 20 {
		made.Data = map[string]string{"version": made.ResourceVersion}
		made, err = maps.Update(ctx, made, metav1.UpdateOptions{})
		must(t, err)
		plane.Seen(t, shared, made)
		cached, err := lister.Get("x")
		must(t, err)
		if cached.ResourceVersion != made.ResourceVersion {
			t.Errorf("the cache has %s, want %s", cached.ResourceVersion, made.ResourceVersion)
		}
		made.Labels = map[string]string{"version": made.ResourceVersion}
		made, err = maps.Update(ctx, made, metav1.UpdateOptions{})
		must(t, err)
		plane.SeenBy(t, made, func() (metav1.Object, error) { return lister.Get("x") })
	}
	later := made.DeepCopy()
	later.ResourceVersion += "0"
	impatient(t, plane, func(t planetest.TB, plane *planetest.Plane) { plane.Seen(t, shared, later) }, "default/x", "want "+later.ResourceVersion)
	impatient(t, plane, func(t planetest.TB, plane *planetest.Plane) { plane.Forgotten(t, shared, made) }, "has the object")
	must(t, maps.Delete(ctx, "x", metav1.DeleteOptions{}))
	plane.Forgotten(t, shared, made)
	if _, err := lister.Get("x"); err == nil {
		t.Error("the cache has what was deleted")
	}
}
