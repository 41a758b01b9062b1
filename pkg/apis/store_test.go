package apis_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// peel is a sub-resource that only reads.
type peel struct{ rest.Getter }

func (peel) New() runtime.Object { return &fruit.Apple{} }
func (peel) Destroy()            {}

func TestSubresourceAndStore(t *testing.T) {
	t.Parallel()
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Subresource("peel", func(s *registry.Store) rest.Storage { return peel{s} }),
		apis.Store(func(s *registry.Store) { s.ReturnDeletedObject = true }),
		apis.NameValidation(func(name string, _ bool) []string {
			if strings.Contains(name, "_") {
				return nil
			}
			return []string{"no underscore"}
		}),
	))
	s.call(422, "POST", apples, gala)
	s.call(201, "POST", apples, strings.Replace(gala, `"gala"`, `"royal_gala"`, 1))
	s.call(200, "GET", apples+"/royal_gala/peel", "").has("the sub-resource answers", "spec.variety", `"Gala"`)
	s.call(405, "PUT", apples+"/royal_gala/peel", gala)
	s.call(200, "DELETE", apples+"/royal_gala", "").has("Store has the last word", "kind", `"Apple"`)
}

func TestDefaultsOfThePackageStay(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	scheme.AddTypeDefaultingFunc(&fruit.Apple{}, func(obj any) { obj.(*fruit.Apple).Spec.Variety = "wild" })
	must(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples").Register(scheme, fruit.GroupVersion()))
	apple := &fruit.Apple{}
	if scheme.Default(apple); apple.Spec.Variety != "wild" {
		t.Error("a resource without Default replaced the defaults of AddToScheme")
	}
}
