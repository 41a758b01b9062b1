package admit_test

import (
	"encoding/json"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
)

// TestFailingOpenIsLoggedOnce writes while nobody listens at the address of a webhook
// that may be ignored.
func TestFailingOpenIsLoggedOnce(t *testing.T) {
	t.Parallel()
	config := start(t, core.Namespaces{}, core.ConfigMaps{},
		admissionregistration.ValidatingWebhookConfigurations{}, admit.ValidatingWebhooks{})
	const name = "nobody-listens.example.com"
	_, err := typedClient(t, config).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "open"},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: name, ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
				Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}},
				FailurePolicy: ptr.To(admissionv1.Ignore), SideEffects: ptr.To(admissionv1.SideEffectClassNone),
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := dynamicClient(t, config)
	eventually(t, "the webhook is called", func() bool {
		if _, err := try(t, client, configMaps(), nil); err != nil {
			t.Fatal(err)
		}
		return len(libraries.about(name)) > 0
	})
	for i := range 100 {
		_, err := client.Resource(configMaps()).Namespace("default").Create(t.Context(), object(configMaps(), fmt.Sprint("passes-", i), nil), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := libraries.about(name)
	var line struct{ Level, Err string }
	if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &line) != nil || line.Level != "ERROR" || line.Err == "" {
		t.Errorf("%d lines for more than 100 requests, want one with the error: %v", len(lines), lines)
	}
}
