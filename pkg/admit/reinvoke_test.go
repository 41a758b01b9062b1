package admit_test

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/admit"
)

// TestReinvocation: a policy and a webhook that want to are asked again when
// somebody changed the object after them, once; Go functions always are.
func TestReinvocation(t *testing.T) {
	t.Parallel()
	n := &names{}
	h := newHookServer(t)
	h.order = n
	var calls names
	config := start(t, admit.MutateObject("first", func(_ context.Context, obj, _ *corev1.ConfigMap, _ admit.Attributes) error {
		calls.add(obj.Annotations, "called")
		return nil
	}), everything())
	client := typedClient(t, config)
	const has = "has(object.metadata.annotations) && '" + orderAnnotation + "' in object.metadata.annotations"
	// Appends to what is there, at most twice.
	expression := `Object{metadata: Object.metadata{annotations: {"` + orderAnnotation + `": object.metadata.annotations["` + orderAnnotation + `"] + " NAME"}}}`
	for name, policy := range map[string]admissionv1.ReinvocationPolicyType{
		"ifneeded": admissionv1.IfNeededReinvocationPolicy, "never": admissionv1.NeverReinvocationPolicy,
	} {
		createMutatingSpec(t, client, name, admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: matches(configMaps()), ReinvocationPolicy: policy,
			MatchConditions: []admissionv1.MatchCondition{{Name: "has", Expression: has}},
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: strings.ReplaceAll(expression, "NAME", name)},
			}},
		})
	}
	var webhooks []admissionv1.MutatingWebhook
	for _, policy := range []admissionv1.ReinvocationPolicyType{admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy} {
		w := h.hook(strings.ToLower(string(policy)), "/mutate-order", admissionv1.Fail)
		webhooks = append(webhooks, admissionv1.MutatingWebhook{
			Name: w.Name, Rules: w.Rules, ClientConfig: w.ClientConfig, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, ReinvocationPolicy: ptr.To(policy),
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"hook": "order"}},
		})
	}
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: webhooks,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dyn := dynamicClient(t, config)
	eventually(t, "all are asked", func() bool {
		got, err := tryObject(t, dyn, configMaps(), ordered("begun"))
		return err == nil && strings.Contains(orderOf(got), "never") && strings.Contains(orderOf(got), "ifneeded") && strings.Contains(orderOf(got), "webhook")
	})
	_ = calls.take()
	before := len(h.seen("reinvoked"))
	u := ordered("begun")
	u.SetName("reinvoked")
	got, err := tryObject(t, dyn, configMaps(), u)
	if err != nil {
		t.Fatal(err)
	}
	if order := orderOf(got); strings.Count(order, "ifneeded") != 2 || strings.Count(order, "never") != 1 || strings.Count(order, "webhook") != 1 {
		t.Errorf("policies: got %q", order)
	}
	if got := calls.take(); len(got) != 2 {
		t.Errorf("the function is called twice: %q", got)
	}
	if asked := len(h.seen("reinvoked")) - before; asked != 3 {
		t.Errorf("webhooks were asked %d times, want one once and the other twice", asked)
	}
}
