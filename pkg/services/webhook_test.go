package services_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/services"
)

// byService names port 443 of a Service in namespace default.
func byService(name string, ca []byte) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{
		CABundle: ca, Service: &admissionv1.ServiceReference{Namespace: "default", Name: name},
	}
}

// review registers a webhook for ConfigMaps with a label, and waits until the create of one
// says what it must: caches of webhooks and Services are a moment behind.
func review(t *testing.T, p *planetest.Plane, name string, client admissionv1.WebhookClientConfig, want string) {
	t.Helper()
	none, fail, label := admissionv1.SideEffectClassNone, admissionv1.Fail, map[string]string{"hook": name}
	_, err := p.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: name + ".example.com", ClientConfig: client, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: label},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "reviewed-", Labels: label}}
		_, err := p.Client().CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("webhook %s: got %w, want %q", name, err, want)
		}
		return nil
	})
}

// TestWebhook: a webhook is found by each way that a Service can say where it is, and is
// who it must be.
func TestWebhook(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(refuse)
	byAddress, byPort := serve(t, "address.default.svc", handler), serve(t, "port.default.svc", handler)
	p := start(t, admissionregistration.ValidatingWebhookConfigurations{}, admit.ValidatingWebhooks{}, services.Addresses{
		"default/address": byAddress.address(),
		"default/port":    "127.0.0.1:1", "default/port:443": byPort.address(),
	})
	cases := map[string]struct {
		reason  string
		prepare func(name string, s *server)
		server  *server
		port    bool // that of the server is the Service's
		want    string
	}{
		"address": {reason: "an address was named; there is no such Service", server: byAddress, want: "no thanks"},
		"port":    {reason: "the address of a port is more than that of its Service", server: byPort, want: "no thanks"},
		"slice": {
			reason: "an EndpointSlice has the port of the name, not the number that targetPort may name",
			prepare: func(name string, s *server) {
				service(t, p, name)
				slice(t, p, name, s.port, true)
			},
			want: "no thanks",
		},
		"endpoints": {
			reason: "without a slice, Endpoints count",
			prepare: func(name string, s *server) {
				service(t, p, name)
				endpoints(t, p, name, s.port)
			},
			want: "no thanks",
		},
		"external": {
			reason: "a name of the DNS, with the port that is asked for", port: true,
			prepare: func(name string, _ *server) {
				_, err := p.Client().CoreV1().Services("default").Create(t.Context(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			},
			want: "no thanks",
		},
		"imposter": {
			reason: "the certificate must be for the Service, wherever it is", server: serve(t, "other.default.svc", handler),
			prepare: func(name string, s *server) {
				service(t, p, name)
				slice(t, p, name, s.port, true)
			},
			want: "certificate is valid for other.default.svc, not imposter.default.svc",
		},
		"absent": {
			reason: "no Service, no address",
			want:   `service "default/absent" does not exist: create it, with endpoints, or name where it runs (services.Addresses, flag --service)`,
		},
		"empty": {
			reason: "a Service that nobody is behind", prepare: func(name string, _ *server) { service(t, p, name) },
			want: `service "default/empty" has no endpoints: create them, or name where it runs`,
		},
		"unready": {
			reason: "who is not ready is not asked",
			prepare: func(name string, s *server) {
				service(t, p, name)
				slice(t, p, name, s.port, false)
			},
			want: `service "default/unready" has no endpoints that are ready and have a port named "https"`,
		},
		"portless": {
			reason: "the Service has other ports", port: true, prepare: func(name string, _ *server) { service(t, p, name) },
			want: `service "default/portless" has no port `,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.server
			if s == nil {
				s = serve(t, name+".default.svc", handler)
			}
			if c.prepare != nil {
				c.prepare(name, s)
			}
			client := byService(name, s.ca)
			if c.port {
				client.Service.Port = &s.port
			}
			t.Log(c.reason)
			review(t, p, name, client, c.want)
		})
	}
}

// endpoints creates Endpoints of a Service.
func endpoints(t *testing.T, p *planetest.Plane, name string, port int32) {
	t.Helper()
	//nolint:staticcheck // deprecated, and still written by hand
	_, err := p.Client().CoreV1().Endpoints("default").Create(t.Context(), &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "127.0.0.1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "127.1.2.3"}},
			Ports: []corev1.EndpointPort{{Name: "metrics", Port: 1}, {Name: "https", Port: port}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeny: the networks that webhooks may not be in are for addresses that users of the
// API choose. What the operator named is no way around.
func TestDeny(t *testing.T) {
	t.Parallel()
	s := serve(t, "named.default.svc", http.HandlerFunc(refuse))
	other := serve(t, "other.default.svc", http.HandlerFunc(refuse))
	p := start(t, admissionregistration.ValidatingWebhookConfigurations{}, admit.ValidatingWebhooks{Deny: admit.PrivateNetworks()},
		services.Addresses{"default/named": s.address(), "default/other": other.address()})
	service(t, p, "thief")
	slice(t, p, "thief", s.port, true)
	url := s.URL
	cases := map[string]struct {
		reason string
		client admissionv1.WebhookClientConfig
		want   string
	}{
		"named": {"the operator chose the address", byService("named", s.ca), "no thanks"},
		"other": {"and those of others", byService("other", other.ca), "no thanks"},
		"url": {
			"a URL comes through the API, also that of a named address",
			admissionv1.WebhookClientConfig{URL: &url, CABundle: s.ca},
			"connections to 127.0.0.1 are not allowed",
		},
		"thief": {"so do endpoints", byService("thief", s.ca), "connections to 127.0.0.1 are not allowed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Log(c.reason)
			review(t, p, name, c.client, c.want)
		})
	}
}

// TestConversionWebhook: the webhook of a CRD is a Service too.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	s := serve(t, "converter.default.svc", crd.ConvertFunc(func(_ context.Context, o *unstructured.Unstructured, version string) error {
		o.SetLabels(map[string]string{"converted": version})
		return nil
	}))
	cases := map[string]struct {
		reason string
		parts  []controlplane.Part
	}{
		"address": {"denied networks are not for addresses that were named", []controlplane.Part{
			services.Addresses{"default/converter": s.address()}, crd.Definitions{Deny: admit.PrivateNetworks()},
		}},
		"slice": {"the API says where it is", []controlplane.Part{crd.Definitions{}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t, c.parts...)
			if name == "slice" {
				service(t, p, "converter")
				slice(t, p, "converter", s.port, true)
			}
			define(t, p, s.ca)
			bikes := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "bikes"}
			bike := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Bike", "metadata": map[string]any{"name": "a"},
			}}
			until(t, func() error {
				_, err := p.Dynamic().Resource(bikes).Create(t.Context(), bike, metav1.CreateOptions{})
				return err
			})
			bikes.Version = "v2"
			until(t, func() error {
				got, err := p.Dynamic().Resource(bikes).Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil || got.GetLabels()["converted"] != "v2" {
					return fmt.Errorf("%s: as v2: %v, %w", c.reason, got, err)
				}
				return nil
			})
		})
	}
}

// define creates a CRD of two versions, which the Service default/converter converts.
func define(t *testing.T, p *planetest.Plane, ca []byte) {
	t.Helper()
	preserve := true
	anything := &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve},
	}
	bikes := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "bikes.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "bikes", Kind: "Bike"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true, Schema: anything}, {Name: "v2", Served: true, Schema: anything},
			},
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ConversionReviewVersions: []string{"v1"},
					ClientConfig: &apiextensionsv1.WebhookClientConfig{
						CABundle: ca, Service: &apiextensionsv1.ServiceReference{Namespace: "default", Name: "converter"},
					},
				},
			},
		},
	}
	client, err := clientset.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), bikes, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
