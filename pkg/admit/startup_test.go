package admit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// deadWebhook is asked about every ConfigMap and never answers.
func deadWebhook() *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "dead"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "dead.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1")},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
}

func createConfigMap(ctx context.Context, config *rest.Config, name string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// prepare makes the webhook, waits until others meet it, and writes as the plane.
func prepare(ctx context.Context, plane *controlplane.Plane) error {
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return err
	}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, deadWebhook(), metav1.CreateOptions{}); err != nil {
		return err
	}
	other := plane.Config()
	other.Impersonate = rest.ImpersonationConfig{UserName: "ann", Groups: []string{"system:masters"}}
	n := 0
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		n++
		err := createConfigMap(ctx, other, fmt.Sprintf("other-%d", n))
		return err != nil && strings.Contains(err.Error(), "dead.example.com"), nil
	})
	if err != nil {
		return fmt.Errorf("nobody is asked about others: %w", err)
	}
	return createConfigMap(ctx, plane.Config(), "own")
}

func TestNothingKeepsAPlaneFromStarting(t *testing.T) {
	t.Parallel()
	config := start(t, core.Namespaces{}, core.ConfigMaps{},
		admissionregistration.ValidatingWebhookConfigurations{}, admit.ValidatingWebhooks{},
		controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Work(controlplane.Work{Name: "write", Start: prepare})
			return nil
		}))
	if err := createConfigMap(t.Context(), config, "later"); err == nil {
		t.Error("the exemption ends when the plane is ready")
	}
	err := typedClient(t, config).AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "dead", metav1.DeleteOptions{})
	if err != nil {
		t.Errorf("a webhook cannot protect itself: %v", err)
	}
	eventually(t, "it is gone", func() bool { return createConfigMap(t.Context(), config, "last") == nil })
}
