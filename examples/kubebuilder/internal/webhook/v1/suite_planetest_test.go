//go:build !envtest

package v1

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	webappv1 "example.com/guestbook/api/v1"
)

var (
	ctx       = context.Background()
	k8sClient client.Client
)

func TestWebhooks(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	RunSpecs(t, "Webhook Suite")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	Expect(webappv1.AddToScheme(scheme.Scheme)).To(Succeed())

	By("starting a control plane that asks the webhooks of mux")
	mux := http.NewServeMux()
	cfg := planetest.Start(GinkgoT(),
		planetest.WithCRDs(os.DirFS("../../../config/crd/bases")),
		planetest.WithWebhooks(mux, planetest.Files("../../../config/webhook/manifests.yaml")),
	).Config()

	var err error
	k8sClient, err = client.New(cfg, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())

	By("registering the webhooks in mux")
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:        scheme.Scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{WebhookMux: mux}),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(SetupGuestbookWebhookWithManager(mgr)).To(Succeed())
})
