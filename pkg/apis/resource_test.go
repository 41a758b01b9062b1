package apis_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit/v1alpha1"
)

const (
	apples = "v1/namespaces/default/apples"
	gala   = `{"apiVersion":"fruit.example.com/v1","kind":"Apple","metadata":{"name":"gala","labels":{"tree":"old"}},` +
		`"spec":{"variety":"Gala"},"status":{"ripe":true}}`
)

// everything is a definition with every option that the type can bear.
func everything(more ...apis.Option) *apis.Definition {
	return apis.Resource[fruit.Apple, fruit.AppleList]("apples", append(allOptions(), more...)...)
}

func allOptions() []apis.Option {
	return []apis.Option{
		apis.ShortNames("ap"), apis.Categories("all"), apis.Status(),
		apis.Default(func(a *fruit.Apple) {
			if a.Spec.Replicas == nil {
				a.Spec.Replicas = new(int32(1))
			}
		}),
		apis.Validate(validate), apis.ValidateUpdate(validateUpdate),
		apis.Warn(func(_ context.Context, a *fruit.Apple) []string {
			if a.Spec.Variety == "Red Delicious" {
				return []string{"spec.variety: neither"}
			}
			return nil
		}),
		apis.SelectableFields(map[string]func(*fruit.Apple) string{
			"spec.variety": func(a *fruit.Apple) string { return a.Spec.Variety },
		}),
		apis.Columns(func(a *fruit.Apple) []any { return []any{a.Spec.Variety, int64(len(a.Spec.Grafts))} },
			metav1.TableColumnDefinition{Name: "Variety", Type: "string"},
			metav1.TableColumnDefinition{Name: "Grafts", Type: "integer", Priority: 1},
		),
		apis.Scale(func(a *fruit.Apple) (*int32, int32, string) {
			return a.Spec.Replicas, a.Status.Replicas, "tree=" + a.Name
		}, func(a *fruit.Apple, n int32) { a.Spec.Replicas = &n }),
		apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", v1alpha1.ToHub, v1alpha1.FromHub),
		apis.DefaultVersion(func(a *v1alpha1.Apple) {
			if a.Spec.Sort == "" {
				a.Spec.Sort = "wild"
			}
		}),
	}
}

func validate(_ context.Context, a *fruit.Apple) field.ErrorList {
	var errs field.ErrorList
	if a.Spec.Variety == "" {
		errs = append(errs, field.Required(field.NewPath("spec", "variety"), ""))
	}
	if *a.Spec.Replicas > 100 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "replicas"), *a.Spec.Replicas, "at most 100"))
	}
	if a.Status.Replicas < 0 {
		errs = append(errs, field.Invalid(field.NewPath("status", "replicas"), a.Status.Replicas, "negative"))
	}
	return errs
}

func validateUpdate(_ context.Context, a, old *fruit.Apple) field.ErrorList {
	return apivalidation.ValidateImmutableField(a.Spec.Variety, old.Spec.Variety, field.NewPath("spec", "variety"))
}

func TestCreateGetListDelete(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	created := s.call(201, "POST", apples, gala)
	created.has("defaults are filled, status is dropped, generation starts",
		"spec.replicas", "1", "status", "{}", "metadata.generation", "1", "metadata.namespace", `"default"`)
	s.call(409, "POST", apples, gala)
	s.call(200, "GET", apples+"/gala", "").has("it is stored", "metadata.uid", created.at("metadata.uid"))
	s.call(404, "GET", apples+"/fuji", "")
	if n := len(s.call(200, "GET", "v1/apples?labelSelector=tree%3Dold", "").Object["items"].([]any)); n != 1 {
		t.Errorf("listed %d apples of all namespaces, want 1", n)
	}
	generated := s.call(201, "POST", apples, `{"kind":"Apple","apiVersion":"fruit.example.com/v1","metadata":{"generateName":"a-"},"spec":{"variety":"x"}}`)
	if !strings.HasPrefix(generated.GetName(), "a-") || generated.GetName() == "a-" {
		t.Errorf("generated name %q", generated.GetName())
	}
	s.call(200, "DELETE", apples+"/gala", "").has("a Status comes back", "kind", `"Status"`, "status", `"Success"`)
	s.call(200, "DELETE", apples+"?fieldSelector=spec.variety%3Dx", "")
	if n := len(s.call(200, "GET", apples, "").Object["items"].([]any)); n != 0 {
		t.Errorf("%d apples left, want 0", n)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	s.call(201, "POST", apples+"?dryRun=All", gala).has("the answer is as if", "spec.replicas", "1")
	s.call(404, "GET", apples+"/gala", "")
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	s.call(404, "PUT", apples+"/gala", gala)
	s.call(201, "POST", apples, gala)
	s.call(200, "PUT", apples+"/gala", strings.Replace(gala, `"old"`, `"new"`, 1)).
		has("labels alone do not count", "metadata.generation", "1", "status", "{}", "metadata.labels.tree", `"new"`)
	updated := s.call(200, "PUT", apples+"/gala", strings.Replace(gala, `"Gala"`, `"Gala","replicas":2`, 1))
	updated.has("the spec counts", "metadata.generation", "2", "spec.replicas", "2")
	s.call(409, "PUT", apples+"/gala", strings.Replace(gala, `"name"`, `"resourceVersion":"1","name"`, 1))
	s.call(422, "PUT", apples+"/gala", strings.Replace(gala, `"Gala"`, `"Fuji"`, 1)).
		has("immutable", "details.causes", `[{"field":"spec.variety","message":"Invalid value: \"Fuji\": field is immutable","reason":"FieldValueInvalid"}]`)
}

func TestValidation(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	cases := map[string]struct {
		reason, metadata, spec string
		fields                 string
	}{
		"required": {
			reason:   "Validate runs after defaults",
			metadata: `{"name":"a"}`, spec: `{}`, fields: "spec.variety",
		},
		"several": {
			reason:   "every problem is a cause",
			metadata: `{"name":"a"}`, spec: `{"replicas":101}`, fields: "spec.replicas,spec.variety",
		},
		"name": {
			reason:   "a name is a DNS subdomain by default",
			metadata: `{"name":"A_b"}`, spec: `{"variety":"x"}`, fields: "metadata.name",
		},
		"label": {
			reason:   "metadata is validated without any option",
			metadata: `{"name":"a","labels":{"-":"x"}}`, spec: `{"variety":"x"}`, fields: "metadata.labels",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := s.call(422, "POST", apples, `{"kind":"Apple","apiVersion":"fruit.example.com/v1","metadata":`+c.metadata+`,"spec":`+c.spec+`}`)
			var fields []string
			for _, cause := range a.Object["details"].(map[string]any)["causes"].([]any) {
				fields = append(fields, cause.(map[string]any)["field"].(string))
			}
			slices.Sort(fields)
			if got := strings.Join(fields, ","); got != c.fields {
				t.Errorf("%s: causes %s, want %s", c.reason, got, c.fields)
			}
		})
	}
	unknown := strings.Replace(gala, `"Gala"`, `"Gala","seeds":3`, 1)
	s.call(400, "POST", apples+"?fieldValidation=Strict", unknown)
	if w := s.call(201, "POST", apples+"?fieldValidation=Warn", unknown).warnings; len(w) != 1 {
		t.Errorf("an unknown field gave warnings %q, want one", w)
	}
	neither := strings.NewReplacer(`"Gala"`, `"Red Delicious"`, `"gala"`, `"red"`).Replace(gala)
	if w := s.call(201, "POST", apples, neither).warnings; len(w) != 1 || !strings.Contains(w[0], "neither") {
		t.Errorf("Warn gave %q", w)
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	s.call(201, "POST", apples, gala)
	s.patch(200, "json-patch+json", apples+"/gala", `[{"op":"add","path":"/spec/grafts","value":[{"name":"a"}]}]`).
		has("JSON patch", "spec.grafts", `[{"name":"a"}]`)
	s.patch(200, "strategic-merge-patch+json", apples+"/gala", `{"spec":{"grafts":[{"name":"b"}]}}`).
		has("a strategic patch merges by key", "spec.grafts", `[{"name":"b"},{"name":"a"}]`)
	s.patch(200, "merge-patch+json", apples+"/gala", `{"spec":{"grafts":[{"name":"c"}]}}`).
		has("a merge patch replaces", "spec.grafts", `[{"name":"c"}]`)
	s.patch(200, "merge-patch+json", apples+"/gala", `{"status":{"ripe":true}}`).has("status stays", "status", "{}")
	s.call(415, "PATCH", apples+"/gala", "{}")
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	apply := func(code int, path, manager, spec string) *answer {
		t.Helper()
		return s.patch(code, "apply-patch+yaml", path+"?fieldManager="+manager,
			`{"kind":"Apple","apiVersion":"fruit.example.com/v1","metadata":{"name":"gala"},`+spec+`}`)
	}
	apply(201, apples+"/gala", "ann", `"spec":{"variety":"Gala","replicas":3,"grafts":[{"name":"a"}]},"status":{"ripe":true}`).
		has("status is reset", "status", "{}")
	apply(200, apples+"/gala", "bob", `"spec":{"grafts":[{"name":"b"}]}`).
		has("grafts are keyed by name", "spec.grafts", `[{"name":"a"},{"name":"b"}]`)
	apply(409, apples+"/gala", "bob", `"spec":{"replicas":4}`)
	apply(200, apples+"/gala/status", "kim", `"spec":{"replicas":4},"status":{"ripe":true}`).
		has("only status", "status.ripe", "true", "spec.replicas", "3")
	a := apply(200, apples+"/gala", "ann", `"spec":{"variety":"Gala","replicas":3}`)
	a.has("what ann no longer applies goes", "spec.grafts", `[{"name":"b"}]`)
	for _, m := range a.GetManagedFields() {
		owned := m.FieldsV1.GetRawString()
		if (m.Manager == "ann") == strings.Contains(owned, "f:status") && m.Manager != "bob" {
			t.Errorf("%s owns %s", m.Manager, owned)
		}
		if m.Manager == "kim" && strings.Contains(owned, "f:spec") {
			t.Errorf("kim owns %s, though /status ignores spec", owned)
		}
	}
	s.patch(200, "apply-patch+yaml", "v1alpha1/namespaces/default/apples/gala?fieldManager=eve",
		`{"kind":"Apple","apiVersion":"fruit.example.com/v1alpha1","metadata":{"name":"gala"},"spec":{"sort":"Gala"}}`).
		has("apply in a spoke", "spec.sort", `"Gala"`)
}
