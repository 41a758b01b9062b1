package admit_test

import (
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

func typedClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// matches are the creates and updates of a resource.
func matches(r schema.GroupVersionResource) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{r.Group}, APIVersions: []string{r.Version}, Resources: []string{r.Resource}},
		},
	}}}
}

// TestPolicies runs each test against a server of its own: a policy whose kind of
// parameters is not served fails all that it is about, before its conditions are asked.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, kubernetes.Interface, dynamic.Interface){
		"Validate": validatePolicy, "Params": paramsPolicy, "Mutate": mutatePolicy, "NewKind": newKindPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := start(t, everything())
			test(t, typedClient(t, config), dynamicClient(t, config))
		})
	}
}

func createValidating(t *testing.T, client kubernetes.Interface, name string, spec admissionv1.ValidatingAdmissionPolicySpec, ref *admissionv1.ParamRef) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	v1 := client.AdmissionregistrationV1()
	_, err := v1.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
	_, err2 := v1.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ParamRef: ref, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
}

// refused tells whether an error is a refusal with some text.
func refused(err error, text string) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), text)
}

// validatePolicy denies custom resources by a rule, in the version of the rule
// and in another one.
func validatePolicy(t *testing.T, client kubernetes.Interface, dyn dynamic.Interface) {
	createValidating(t, client, "sizes", admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: matches(widgets()),
		MatchConditions:  []admissionv1.MatchCondition{{Name: "sized", Expression: "has(object.spec.size)"}},
		Variables:        []admissionv1.Variable{{Name: "size", Expression: "object.spec.size"}},
		Validations: []admissionv1.Validation{{
			Expression: "variables.size < 10", MessageExpression: "'too big: ' + string(variables.size)",
		}},
	}, nil)
	big, small := map[string]any{"spec": map[string]any{"size": int64(11)}}, map[string]any{"spec": map[string]any{"size": int64(9)}}
	eventually(t, "a big widget is refused", func() bool {
		_, err := try(t, dyn, widgets(), big)
		return refused(err, "too big: 11")
	})
	if _, err := try(t, dyn, widgets(), small); err != nil {
		t.Errorf("a small widget: %v", err)
	}
	if _, err := try(t, dyn, widgets(), map[string]any{"spec": map[string]any{"color": "red"}}); err != nil {
		t.Errorf("a widget without size does not match: %v", err)
	}
	v2 := widgets()
	v2.Version = "v2"
	if _, err := try(t, dyn, v2, big); !refused(err, "too big: 11") {
		t.Errorf("a rule for v1 matches v2 as well: %v", err)
	}
}

// paramsPolicy denies ConfigMaps by another ConfigMap, before and after the
// policy was made anew.
func paramsPolicy(t *testing.T, client kubernetes.Interface, dyn dynamic.Interface) {
	limits, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Data: map[string]string{"forbidden": "red"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec := admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, MatchConstraints: matches(configMaps()),
		Validations: []admissionv1.Validation{{
			Expression: "!has(object.data) || !('color' in object.data) || object.data.color != params.data.forbidden", Message: "not that color",
		}},
	}
	ref := &admissionv1.ParamRef{Name: "limits", Namespace: "default", ParameterNotFoundAction: ptr.To(admissionv1.DenyAction)}
	red, blue := map[string]any{"data": map[string]any{"color": "red"}}, map[string]any{"data": map[string]any{"color": "blue"}}
	createValidating(t, client, "colors", spec, ref)
	eventually(t, "red is refused", func() bool {
		_, err := try(t, dyn, configMaps(), red)
		return refused(err, "not that color")
	})
	if _, err := try(t, dyn, configMaps(), blue); err != nil {
		t.Errorf("blue is allowed: %v", err)
	}
	v1 := client.AdmissionregistrationV1()
	err = errors.Join(v1.ValidatingAdmissionPolicies().Delete(t.Context(), "colors", metav1.DeleteOptions{}),
		v1.ValidatingAdmissionPolicyBindings().Delete(t.Context(), "colors", metav1.DeleteOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "red is allowed without the policy", func() bool {
		_, err := try(t, dyn, configMaps(), red)
		return err == nil
	})
	limits.Data["forbidden"] = "blue"
	if _, err := client.CoreV1().ConfigMaps("default").Update(t.Context(), limits, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	createValidating(t, client, "colors", spec, ref)
	eventually(t, "blue is refused by the new parameters", func() bool {
		_, err := try(t, dyn, configMaps(), blue)
		return refused(err, "not that color")
	})
}

// mutatePolicy changes ConfigMaps by an apply configuration and custom resources
// by a patch.
func mutatePolicy(t *testing.T, client kubernetes.Interface, dyn dynamic.Interface) {
	createMutating(t, client, "label", configMaps(), admissionv1.Mutation{
		PatchType: admissionv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionv1.ApplyConfiguration{
			Expression: `Object{metadata: Object.metadata{labels: {"policy": "was-here"}}}`,
		},
	})
	createMutating(t, client, "paint", widgets(), admissionv1.Mutation{
		PatchType: admissionv1.PatchTypeJSONPatch,
		JSONPatch: &admissionv1.JSONPatch{
			Expression: `has(object.spec) ? [JSONPatch{op: "add", path: "/spec/color", value: "green"}] : []`,
		},
	})
	eventually(t, "a ConfigMap gets a label", func() bool {
		got, err := tryObject(t, dyn, configMaps(), asking(object(configMaps(), "asking", nil)))
		return err == nil && got.GetLabels()["policy"] == "was-here"
	})
	eventually(t, "a widget gets a color", func() bool {
		got, err := tryObject(t, dyn, widgets(), asking(object(widgets(), "asking", map[string]any{"spec": map[string]any{}})))
		return err == nil && color(got) == "green"
	})
}

func asking(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetAnnotations(map[string]string{"mutate": ""})
	return u
}

func color(u *unstructured.Unstructured) string {
	c, _, _ := unstructured.NestedString(u.Object, "spec", "color")
	return c
}

// createMutating makes a policy for objects that ask for it: a kind that is new
// fails what matches until its schema is known.
func createMutating(t *testing.T, client kubernetes.Interface, name string, r schema.GroupVersionResource, m admissionv1.Mutation) {
	t.Helper()
	const asked = "has(object.metadata.annotations) && 'mutate' in object.metadata.annotations"
	createMutatingSpec(t, client, name, mutatingSpec(r, asked, m))
}

// mutatingSpec is a policy for what meets a condition, which is asked once.
func mutatingSpec(r schema.GroupVersionResource, condition string, m admissionv1.Mutation) admissionv1.MutatingAdmissionPolicySpec {
	return admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: matches(r), Mutations: []admissionv1.Mutation{m},
		MatchConditions:    []admissionv1.MatchCondition{{Name: "asked", Expression: condition}},
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}
}

func createMutatingSpec(t *testing.T, client kubernetes.Interface, name string, spec admissionv1.MutatingAdmissionPolicySpec) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	v1 := client.AdmissionregistrationV1()
	_, err := v1.MutatingAdmissionPolicies().Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
	_, err2 := v1.MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
}

// newKindPolicy has parameters of a kind that is defined after the policy.
func newKindPolicy(t *testing.T, client kubernetes.Interface, dyn dynamic.Interface) {
	createValidating(t, client, "later", admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionv1.ParamKind{APIVersion: "later.example.com/v1", Kind: "Widget"}, MatchConstraints: matches(configMaps()),
		MatchConditions: []admissionv1.MatchCondition{{Name: "asked", Expression: "has(object.data) && 'later' in object.data"}},
		Validations:     []admissionv1.Validation{{Expression: "params.spec.color != object.data.later", Message: "not yet"}},
	}, &admissionv1.ParamRef{Name: "one", Namespace: "default", ParameterNotFoundAction: ptr.To(admissionv1.AllowAction)})
	definition := &unstructured.Unstructured{}
	parse(t, strings.ReplaceAll(widgetCRD, "example.com", "later.example.com"), definition)
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := dyn.Resource(crds).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	later := widgets()
	later.Group = "later.example.com"
	eventually(t, "the new kind is served", func() bool {
		one := object(later, "one", map[string]any{"spec": map[string]any{"color": "red"}})
		_, err := dyn.Resource(later).Namespace("default").Create(t.Context(), one, metav1.CreateOptions{})
		return err == nil
	})
	eventually(t, "its object is a parameter", func() bool {
		_, err := try(t, dyn, configMaps(), map[string]any{"data": map[string]any{"later": "red"}})
		return refused(err, "not yet")
	})
}
