package meta_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
)

func TestDefinitions(t *testing.T) {
	t.Parallel()
	definitions := meta.Definitions(func(path string) spec.Ref { return spec.MustCreateRef("#/definitions/" + path) })
	wanted := map[string]string{
		metav1.ObjectMeta{}.OpenAPIModelName():            "every object has one",
		metav1.Status{}.OpenAPIModelName():                "every error answer",
		metav1.DeleteOptions{}.OpenAPIModelName():         "the body of a delete",
		metav1.WatchEvent{}.OpenAPIModelName():            "every watch",
		metav1.APIResourceList{}.OpenAPIModelName():       "discovery",
		metav1.Condition{}.OpenAPIModelName():             "most status types",
		metav1.Duration{}.OpenAPIModelName():              "a field type with a form of its own",
		metav1.PartialObjectMetadata{}.OpenAPIModelName(): "metadata-only clients",
		runtime.RawExtension{}.OpenAPIModelName():         "WatchEvent and embedded objects",
		intstr.IntOrString{}.OpenAPIModelName():           "users' types",
		resource.Quantity{}.OpenAPIModelName():            "users' types",
		version.Info{}.OpenAPIModelName():                 "/version",
		autoscalingv1.Scale{}.OpenAPIModelName():          "the scale sub-resource",
	}
	for name, reason := range wanted {
		if _, ok := definitions[name]; !ok {
			t.Errorf("%s is missing: it is needed for %s", name, reason)
		}
	}
	for name, d := range definitions {
		for _, needed := range d.Dependencies {
			if _, ok := definitions[needed]; !ok {
				t.Errorf("%s needs %s, which is missing", name, needed)
			}
		}
	}
}
