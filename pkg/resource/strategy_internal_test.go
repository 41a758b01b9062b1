package resource

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
	d := Of[appsv1.Deployment, appsv1.DeploymentList]("deployments",
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
