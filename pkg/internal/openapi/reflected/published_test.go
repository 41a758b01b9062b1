package reflected_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

func types(objects ...any) []reflect.Type {
	var list []reflect.Type
	for _, o := range objects {
		list = append(list, reflect.TypeOf(o))
	}
	return list
}

func ref(name string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + name) }

// publishedDefinitions are the generated ones to compare with.
func publishedDefinitions() map[string]common.OpenAPIDefinition {
	all := apiextensionsopenapi.GetOpenAPIDefinitions(ref)
	maps.Copy(all, aggregatoropenapi.GetOpenAPIDefinitions(ref))
	return all
}

// differences lists, by definition and field, what only comments tell, or where the wire and openapi-gen differ.
// The package documentation explains the latter.
func differences() map[string]string {
	const (
		optional = "comment: +optional without omitempty"
		required = "comment: +required in spite of omitempty"
		atomic   = "comment: +structType=atomic"
		zero     = "comment: +default"
		wire     = "wire: any JSON value, which openapi-gen calls an object"
	)
	return map[string]string{
		"apis.apiextensions.v1.CustomResourceDefinitionStatus required acceptedNames":       optional,
		"apis.apiextensions.v1.CustomResourceDefinitionStatus required conditions":          optional,
		"apis.apiextensions.v1.CustomResourceDefinitionStatus required storedVersions":      optional,
		"apis.apiextensions.v1beta1.CustomResourceDefinitionStatus required acceptedNames":  optional,
		"apis.apiextensions.v1beta1.CustomResourceDefinitionStatus required conditions":     optional,
		"apis.apiextensions.v1beta1.CustomResourceDefinitionStatus required storedVersions": optional,
		"io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler required spec":                   required,
		"io.k8s.api.autoscaling.v1.CrossVersionObjectReference":                             atomic,
		"apis.meta.v1.LabelSelector":                   atomic,
		"apis.meta.v1.OwnerReference":                  atomic,
		"io.k8s.api.autoscaling.v1.ScaleSpec.replicas": zero,
		"apis.meta.v1.FieldsV1":                        wire,
		"io.k8s.apimachinery.pkg.runtime.RawExtension": wire,
		"apis.meta.v1.TableRow.cells":                  wire,
	}
}

func TestPublishedTypes(t *testing.T) {
	t.Parallel()
	roots := types(
		apiextensionsv1.CustomResourceDefinition{}, &apiextensionsv1.CustomResourceDefinitionList{},
		apiextensionsv1.ConversionReview{},
		apiextensionsv1beta1.CustomResourceDefinition{}, apiextensionsv1beta1.ConversionReview{},
		apiregistrationv1.APIService{}, apiregistrationv1.APIServiceList{},
		apiregistrationv1beta1.APIService{}, apiregistrationv1beta1.APIServiceList{},
		autoscalingv1.Scale{}, autoscalingv1.HorizontalPodAutoscaler{}, autoscalingv1.HorizontalPodAutoscalerList{},
		autoscalingv1.MetricSpec{}, autoscalingv1.MetricStatus{}, autoscalingv1.HorizontalPodAutoscalerCondition{},
		metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{}, metav1.ApplyOptions{}, metav1.Condition{},
		metav1.CreateOptions{}, metav1.DeleteOptions{}, metav1.Duration{}, metav1.FieldSelectorRequirement{},
		metav1.GetOptions{}, metav1.LabelSelector{}, metav1.List{}, metav1.ListOptions{}, metav1.MicroTime{},
		metav1.PartialObjectMetadataList{}, metav1.PatchOptions{}, metav1.RootPaths{}, metav1.Status{},
		metav1.Table{}, metav1.Timestamp{}, metav1.TypeMeta{}, metav1.UpdateOptions{}, metav1.WatchEvent{},
		version.Info{},
	)
	get, err := reflected.Build(nil, roots)
	if err != nil {
		t.Fatal(err)
	}
	want, got := publishedDefinitions(), get(ref)
	if len(got) < 70 {
		t.Errorf("only %d definitions, the roots reach more", len(got))
	}
	allowed, seen := differences(), map[string]bool{}
	for name, def := range got {
		wanted, ok := want[name]
		if !ok {
			t.Errorf("%s: has no generated counterpart", name)
			continue
		}
		for where, diff := range compare(name, wanted, def) {
			seen[where] = true
			if _, ok := allowed[where]; !ok {
				t.Errorf("%s (-generated +reflected):\n%s", where, diff)
			}
		}
	}
	for where := range allowed {
		if !seen[where] {
			t.Errorf("%s: no difference, take it from the list", where)
		}
	}
}

// compare returns the differences between two definitions by "name", "name.property" and "name required property".
// Descriptions, enums and list types come from comments: they are not compared. List types that were reflected are.
func compare(name string, want, got common.OpenAPIDefinition) map[string]string {
	diffs := map[string]string{}
	note := func(where, diff string) {
		if diff != "" {
			diffs[where] = diff
		}
	}
	name = name[strings.LastIndex(name, ".apis.")+1:]
	note(name+" dependencies", cmp.Diff(slices.Sorted(slices.Values(want.Dependencies)), got.Dependencies))
	for p := range maps.Keys(want.Schema.Properties) {
		inWant, inGot := slices.Contains(want.Schema.Required, p), slices.Contains(got.Schema.Required, p)
		if inWant != inGot {
			note(name+" required "+p, fmt.Sprintf("-%v\n+%v", inWant, inGot))
		}
		note(name+"."+p, diffSchema(want.Schema.Properties[p], got.Schema.Properties[p]))
	}
	note(name+" properties", cmp.Diff(slices.Sorted(maps.Keys(want.Schema.Properties)),
		slices.Sorted(maps.Keys(got.Schema.Properties))))
	for _, def := range []*common.OpenAPIDefinition{&want, &got} {
		def.Schema.Properties, def.Schema.Required = nil, nil
	}
	note(name, diffSchema(want.Schema, got.Schema))
	return diffs
}

func diffSchema(want, got spec.Schema) string {
	want, got = plain(want), plain(got)
	maps.DeleteFunc(want.Extensions, func(key string, _ any) bool {
		_, ok := got.Extensions[key]
		return strings.HasPrefix(key, "x-kubernetes-list-") && !ok
	})
	if len(want.Extensions) == 0 {
		want.Extensions = nil
	}
	return cmp.Diff(want, got, cmp.Comparer(func(a, b spec.Ref) bool { return a.String() == b.String() }))
}

// plain returns a schema without descriptions and enums.
func plain(s spec.Schema) spec.Schema {
	s.Description, s.Enum = "", nil
	s.Extensions = maps.Clone(s.Extensions)
	if v2, ok := s.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
		s.Extensions[common.ExtensionV2Schema] = plain(v2)
	}
	if s.Items != nil {
		items := plain(*s.Items.Schema)
		s.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if s.AdditionalProperties != nil {
		values := plain(*s.AdditionalProperties.Schema)
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: s.AdditionalProperties.Allows, Schema: &values}
	}
	return s
}
