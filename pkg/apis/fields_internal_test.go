package apis

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestJSONFields(t *testing.T) {
	t.Parallel()
	got := jsonFields(reflect.TypeFor[appsv1.Deployment]())
	if diff := cmp.Diff([]string{"kind", "apiVersion", "metadata", "spec", "status"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDesiredStateChanged(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		status bool
		change func(*appsv1.Deployment)
		want   bool
	}{
		"nothing":       {"equal", true, func(*appsv1.Deployment) {}, false},
		"metadata":      {"metadata never counts", true, func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, false},
		"spec":          {"what is wanted counts", true, func(d *appsv1.Deployment) { d.Spec.Paused = true }, true},
		"empty":         {"an empty map is no map", true, func(d *appsv1.Deployment) { d.Spec.Template.Labels = map[string]string{} }, false},
		"status":        {"status has its own sub-resource", true, func(d *appsv1.Deployment) { d.Status.Replicas = 1 }, false},
		"status inline": {"without /status it is like spec", false, func(d *appsv1.Deployment) { d.Status.Replicas = 1 }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			obj := old.DeepCopy()
			c.change(obj)
			if got := (&Definition{status: c.status}).desiredStateChanged(obj, old); got != c.want {
				t.Errorf("%s: got %t", c.reason, got)
			}
		})
	}
}
