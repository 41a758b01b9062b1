package apis_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit/v1alpha1"
)

func ExampleResource() {
	apples := apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.ShortNames("ap"),
		apis.Status(),
		apis.Validate(func(_ context.Context, a *fruit.Apple) field.ErrorList {
			if a.Spec.Variety == "" {
				return field.ErrorList{field.Required(field.NewPath("spec", "variety"), "every apple has one")}
			}
			return nil
		}),
	)
	fmt.Println(apples.Name(), apples.Kind(), apples.Err())
	// Output: apples Apple <nil>
}

func ExampleVersion() {
	apples := apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1",
			func(in *v1alpha1.Apple, out *fruit.Apple) error {
				out.Spec = fruit.AppleSpec{Variety: in.Spec.Sort, Replicas: in.Spec.Replicas, Grafts: in.Spec.Grafts}
				out.Status = in.Status
				return nil
			},
			func(in *fruit.Apple, out *v1alpha1.Apple) error {
				out.Spec = v1alpha1.AppleSpec{Sort: in.Spec.Variety, Replicas: in.Spec.Replicas, Grafts: in.Spec.Grafts}
				out.Status = in.Status
				return nil
			}),
		apis.DefaultVersion(func(a *v1alpha1.Apple) {
			if a.Spec.Sort == "" {
				a.Spec.Sort = "wild"
			}
		}),
	)
	fmt.Println(apples.Resource(fruit.GroupVersion()).Versions)
	// Output: [v1 v1alpha1]
}

func ExampleVerbs() {
	readOnly := apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Verbs("get", "list", "watch"))
	fmt.Println(readOnly.Err())
	// Output: <nil>
}

func ExampleDefinition_Err() {
	apples := apis.Resource[fruit.Apple, fruit.AppleList]("Apples",
		apis.Default(func(*fruit.AppleSpec) {}))
	fmt.Println(apples.Err())
	// Output:
	// resource "Apples": Default is for *fruit.AppleSpec, not *fruit.Apple
	// resource "Apples": name "Apples": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
}
