package admit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// orderAnnotation has the names of those who changed an object, in order.
const orderAnnotation = "example.com/order"

// add appends a name, once.
func add(order, name string) string {
	if slices.Contains(strings.Fields(order), name) {
		return order
	}
	return strings.TrimSpace(order + " " + name)
}

// mutates is an inline function that adds its name to ConfigMaps.
func mutates(name string) controlplane.Part {
	return admit.MutateObject(name, func(_ context.Context, obj, _ *corev1.ConfigMap, _ admit.Attributes) error {
		if order, ok := obj.Annotations[orderAnnotation]; ok {
			obj.Annotations[orderAnnotation] = add(order, name)
		}
		return nil
	})
}

// names are those who validated, in order.
type names struct {
	mu  sync.Mutex
	all []string
}

func (n *names) validates(name string) controlplane.Part {
	return admit.ValidateObject(name, func(_ context.Context, obj, _ *corev1.ConfigMap, _ admit.Attributes) error {
		n.add(obj.Annotations, name)
		return nil
	})
}

func (n *names) add(annotations map[string]string, name string) {
	if order, ok := annotations[orderAnnotation]; ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all = append(n.all, name+" after "+order)
	}
}

// take returns the names since it was last called.
func (n *names) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}

// reviewed answers a review of an object in order: a mutating webhook adds its
// name, a validating one is noted.
func (n *names) reviewed(path string, r *reviewv1.AdmissionRequest, response *reviewv1.AdmissionResponse) {
	var u unstructured.Unstructured
	if err := json.Unmarshal(r.Object.Raw, &u.Object); err != nil || u.GetAnnotations()[orderAnnotation] == "" {
		return
	}
	order := u.GetAnnotations()[orderAnnotation]
	if path == "/validate-order" {
		n.add(u.GetAnnotations(), "webhook")
		return
	}
	response.PatchType = ptr.To(reviewv1.PatchTypeJSONPatch)
	response.Patch = []byte(fmt.Sprintf(`[{"op": "replace", "path": "/metadata/annotations/example.com~1order", "value": %q}]`, add(order, "webhook")))
}

// TestOrder: everything that mutates runs in the order of the parts, be it a Go
// function, the policies or the webhooks; then everything that validates.
func TestOrder(t *testing.T) {
	t.Parallel()
	n := &names{}
	h := newHookServer(t)
	h.order = n
	config := start(t, core.Namespaces{}, core.ConfigMaps{},
		admissionregistration.All(),
		n.validates("a"), mutates("1"), admit.MutatingPolicies{}, mutates("2"), admit.MutatingWebhooks{}, mutates("3"),
		admit.ValidatingPolicies{}, n.validates("b"), admit.ValidatingWebhooks{}, n.validates("c"))
	order(t, config, h)
	client := dynamicClient(t, config)
	eventually(t, "all are asked", func() bool {
		_ = n.take()
		got, err := tryObject(t, client, configMaps(), ordered("begun"))
		_, refusal := tryObject(t, client, configMaps(), ordered("refused"))
		return err == nil && refusal != nil && strings.Contains(orderOf(got), "policy") && strings.Contains(orderOf(got), "webhook") && len(n.take()) == 5
	})
	const mutated = "begun 1 policy 2 webhook 3"
	got, err := client.Resource(configMaps()).Namespace("default").Create(t.Context(), ordered("begun"), metav1.CreateOptions{})
	if err != nil || orderOf(got) != mutated {
		t.Errorf("mutated in order %q, %v, want %q", orderOf(got), err, mutated)
	}
	want := []string{"a after " + mutated, "b after " + mutated, "webhook after " + mutated, "c after " + mutated}
	if diff := cmp.Diff(want, n.take()); diff != "" {
		t.Errorf("validated: -want +got:\n%s", diff)
	}
	if _, err := tryObject(t, client, configMaps(), ordered("refused")); !refused(err, "no more") {
		t.Errorf("the policy refuses: %v", err)
	}
	if diff := cmp.Diff([]string{"a after " + strings.Replace(mutated, "begun", "refused", 1)}, n.take()); diff != "" {
		t.Errorf("who comes after a refusal is not asked: -want +got:\n%s", diff)
	}
}

func orderOf(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	return u.GetAnnotations()[orderAnnotation]
}

func ordered(begin string) *unstructured.Unstructured {
	u := labelled(configMaps(), "ordered", "order")
	u.SetAnnotations(map[string]string{orderAnnotation: begin})
	return u
}

// order registers a webhook and a policy of each kind.
func order(t *testing.T, config *rest.Config, h *hookServer) {
	t.Helper()
	client := typedClient(t, config)
	v1 := client.AdmissionregistrationV1()
	registerHooks(t, config, h.hook("order", "/validate-order", admissionv1.Fail))
	w := h.hook("order", "/mutate-order", admissionv1.Fail)
	_, err := v1.MutatingWebhookConfigurations().Create(t.Context(), &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hooks"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: w.Name, Rules: w.Rules, ClientConfig: w.ClientConfig, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, ObjectSelector: w.ObjectSelector,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const has = "has(object.metadata.annotations) && '" + orderAnnotation + "' in object.metadata.annotations"
	createMutatingSpec(t, client, "order", mutatingSpec(configMaps(), has, admissionv1.Mutation{
		PatchType: admissionv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionv1.ApplyConfiguration{
			Expression: `Object{metadata: Object.metadata{annotations: {"` + orderAnnotation + `": object.metadata.annotations["` +
				orderAnnotation + `"] + " policy"}}}`,
		},
	}))
	createValidating(t, client, "order", admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: matches(configMaps()), MatchConditions: []admissionv1.MatchCondition{{Name: "has", Expression: has}},
		Validations: []admissionv1.Validation{{
			Expression: "!object.metadata.annotations['" + orderAnnotation + "'].startsWith('refused')", Message: "no more",
		}},
	}, nil)
}
