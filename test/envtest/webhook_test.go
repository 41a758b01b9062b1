package envtest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestWebhooks has the server of controller-runtime answer for the webhooks that envtest installs.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	service := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "system", Name: "webhooks", Path: new("/look")},
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	selected := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}}
	env := &envtest.Environment{WebhookInstallOptions: envtest.WebhookInstallOptions{
		MaxTime: patience, // by default 10 s
		ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "look"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "look.example.com", ClientConfig: service, Rules: rules, NamespaceSelector: selected,
				SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: new(int32(30)),
			}},
		}},
	}}
	_, c := start(t, env)
	options := env.WebhookInstallOptions
	server := webhook.NewServer(webhook.Options{
		Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
	})
	server.Register("/look", &webhook.Admission{Handler: admission.HandlerFunc(
		func(_ context.Context, r admission.Request) admission.Response {
			if strings.HasPrefix(r.Name, "bad") {
				return admission.Denied("it is bad")
			}
			return admission.Allowed("")
		})})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	started := server.StartedChecker()
	eventually(t, "the webhook server listens", func(context.Context) error { return started(&http.Request{}) })

	if err := c.Create(t.Context(), configMap("default", "good")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the webhook refuses", func(ctx context.Context) error {
		err := c.Create(ctx, configMap("default", "bad-one"))
		if err != nil && strings.Contains(err.Error(), "it is bad") {
			return nil
		}
		if err == nil {
			_ = c.Delete(ctx, configMap("default", "bad-one")) // not asked yet: once more
			err = errors.New("it was created")
		}
		return err
	})
	if err := c.Create(t.Context(), configMap("kube-system", "bad-two")); err != nil {
		t.Errorf("where the webhook is not asked: %v", err)
	}
}
