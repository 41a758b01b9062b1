package planetest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// tests are what a testing.M runs.
type tests func() int

func (f tests) Run() int { return f() }

// TestMainFunction: the tests of a package share a plane.
func TestMainFunction(t *testing.T) {
	t.Parallel()
	var plane *planetest.Plane
	var kubeconfig string
	code := planetest.Options{NoDefaults: true, Kubeconfig: true}.Main(tests(func() int {
		kubeconfig = plane.Kubeconfig()
		if _, err := os.Stat(kubeconfig); err != nil {
			t.Error(err)
		}
		names := map[string]bool{}
		for range 2 {
			t.Run("Some Test/of "+strings.Repeat("long ", 20), func(t *testing.T) {
				ns := plane.Namespace(t)
				names[ns] = true
				plane.In(ns).Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"))
				if !strings.HasPrefix(ns, "testmainfunction-some-test-of-long") {
					t.Errorf("the namespace is %s", ns)
				}
			})
		}
		for ns := range names {
			got, err := plane.Client().CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
			if err == nil && got.DeletionTimestamp == nil {
				t.Errorf("namespace %s was not deleted", ns)
			}
		}
		if len(names) != 2 {
			t.Errorf("namespaces: %v", names)
		}
		return 7
	}), &plane, namespaces())
	if code != 7 {
		t.Errorf("exit code %d, want that of the tests", code)
	}
	if _, err := os.Stat(kubeconfig); err == nil {
		t.Errorf("%s is still there", kubeconfig)
	}
}

// TestMainFails: tests do not run without a plane, and do not pass with a broken one.
func TestMainFails(t *testing.T) {
	t.Parallel()
	fail := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Work(controlplane.Work{Name: "break", Start: func(context.Context, *controlplane.Plane) error { return errors.New("broken on purpose") }})
		return nil
	})
	var plane *planetest.Plane
	code := planetest.Options{NoDefaults: true}.Main(tests(func() int { t.Error("the tests run"); return 0 }), &plane, core.Namespaces{}, fail)
	if code == 0 {
		t.Error("exit code 0")
	}
}
