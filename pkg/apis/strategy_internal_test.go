package apis

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestRuleOptions(t *testing.T) {
	t.Parallel()
	var asked []map[string]bool
	scheme := runtime.NewScheme()
	scheme.AddValidationFunc(&appsv1.Deployment{}, func(_ context.Context, op operation.Operation, _, _ any) field.ErrorList {
		asked = append(asked, op.Options)
		return nil
	})
	d := Resource[appsv1.Deployment, appsv1.DeploymentList]("deployments",
		RuleOptions(map[string]bool{"A": true}), RuleOptions(map[string]bool{"B": false}))
	s := strategy{Scheme: scheme, d: d}
	obj := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}
	if errs := append(s.Validate(t.Context(), obj), s.ValidateUpdate(t.Context(), obj, obj)...); len(errs) > 0 {
		t.Error(errs)
	}
	want := map[string]bool{"A": true, "B": false}
	if diff := cmp.Diff([]map[string]bool{want, want}, asked); diff != "" {
		t.Errorf("rules are told what is on when an object is created and updated (-want +got):\n%s", diff)
	}
}

func TestRulesOfMetadata(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	scheme.AddValidationFunc(&appsv1.Deployment{}, func(context.Context, operation.Operation, any, any) field.ErrorList {
		return field.ErrorList{field.Required(field.NewPath("metadata", "uid"), ""), field.Required(field.NewPath("spec", "replicas"), "")}
	})
	s := strategy{Scheme: scheme, d: Resource[appsv1.Deployment, appsv1.DeploymentList]("deployments")}
	obj := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}
	errs := s.ValidateUpdate(t.Context(), obj, obj)
	if len(errs) != 1 || errs[0].Field != "spec.replicas" {
		t.Errorf("what the registry says of metadata is not said twice: got %v", errs)
	}
}

func TestDrop(t *testing.T) {
	t.Parallel()
	d := Resource[appsv1.Deployment, appsv1.DeploymentList]("deployments", Status(), Drop(func(d, old *appsv1.Deployment) {
		if old == nil || old.Spec.MinReadySeconds == 0 {
			d.Spec.MinReadySeconds, d.Status.CollisionCount = 0, nil
		}
	}))
	s := strategy{Scheme: runtime.NewScheme(), d: d}
	wants := func() *appsv1.Deployment {
		obj := &appsv1.Deployment{}
		obj.Spec.MinReadySeconds, obj.Spec.Paused = 5, true
		obj.Status.CollisionCount, obj.Status.Replicas = new(int32(5)), 1
		return obj
	}
	created, updated, kept, status := wants(), wants(), wants(), wants()
	s.PrepareForCreate(t.Context(), created)
	s.PrepareForUpdate(t.Context(), updated, created)
	s.PrepareForUpdate(t.Context(), kept, wants())
	statusStrategy{s}.PrepareForUpdate(t.Context(), status, created)
	if created.Spec.MinReadySeconds != 0 || !created.Spec.Paused {
		t.Errorf("it runs when an object is created: %+v", created.Spec)
	}
	if updated.Spec.MinReadySeconds != 0 || updated.Generation != 0 {
		t.Errorf("what is dropped in an update is no change: %+v", updated)
	}
	if kept.Spec.MinReadySeconds != 5 {
		t.Errorf("it sees the old object: %+v", kept.Spec)
	}
	if status.Status.CollisionCount != nil || status.Status.Replicas != 1 {
		t.Errorf("it runs when the status is written: %+v", status.Status)
	}
}
