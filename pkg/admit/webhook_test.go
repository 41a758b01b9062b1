package admit_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit/v1alpha1"
)

// hookServer answers reviews as the path of the request says.
type hookServer struct {
	*httptest.Server
	ca []byte
	// order is asked about reviews of paths that end in it.
	order *names
	ended chan struct{} // closed when the test ends

	mu      sync.Mutex
	reviews []reviewv1.AdmissionRequest
	tokens  []string
}

func newHookServer(t *testing.T) *hookServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hook"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"hook.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	h := &hookServer{ended: make(chan struct{}), ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(h.answer))
	h.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	h.StartTLS()
	t.Cleanup(h.Close)
	t.Cleanup(func() { close(h.ended) })
	return h
}

func (h *hookServer) answer(w http.ResponseWriter, r *http.Request) {
	var review reviewv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.reviews = append(h.reviews, *review.Request)
	h.tokens = append(h.tokens, r.Header.Get("Authorization"))
	h.mu.Unlock()
	response := &reviewv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	switch r.URL.Path {
	case "/deny":
		response.Allowed, response.Warnings = false, []string{"be careful"}
		response.Result = &metav1.Status{Message: "no thanks", Code: http.StatusTeapot, Reason: "Teapot"}
	case "/mutate":
		response.PatchType = ptr.To(reviewv1.PatchTypeJSONPatch)
		response.Patch = []byte(`[{"op": "add", "path": "/metadata/annotations", "value": {"hook": "was-here"}}]`)
	case "/annotate":
		response.AuditAnnotations = map[string]string{"seen": "yes"}
	case "/mutate-order", "/validate-order":
		h.order.reviewed(r.URL.Path, review.Request, response)
	case "/broken":
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	case "/slow":
		// Not until the client went away: an answer then may still reach it.
		<-h.ended
		return
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// seen are the reviews of one name.
func (h *hookServer) seen(name string) []reviewv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.reviews), func(r reviewv1.AdmissionRequest) bool { return r.Name != name })
}

// ResolveEndpoint makes the server the Service default/hook.
func (h *hookServer) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if namespace != "default" || name != "hook" || port != 8443 {
		return nil, fmt.Errorf("unknown service %s/%s:%d", namespace, name, port)
	}
	return url.Parse(h.URL)
}

// resolving is the part of a resolver.
func resolving(r controlplane.ServiceResolver) controlplane.Part {
	return controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.ResolveServices("test", r)
		return nil
	})
}

// patience is the timeout of webhooks that answer, on a machine busy with all tests.
const patience = 30 // seconds, the most there is

// hook is a webhook for ConfigMaps and Widgets with the label hook=<name>.
func (h *hookServer) hook(name, path string, failure admissionv1.FailurePolicyType) admissionv1.ValidatingWebhook {
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{
			APIGroups: []string{"", "example.com"}, APIVersions: []string{"v1"}, Resources: []string{"configmaps", "widgets"},
		},
	}
	older := rule
	older.Rule = admissionv1.Rule{APIGroups: []string{"fruit.example.com"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"apples"}}
	return admissionv1.ValidatingWebhook{
		Name: name + ".example.com", Rules: []admissionv1.RuleWithOperations{rule, older},
		ClientConfig:  admissionv1.WebhookClientConfig{URL: ptr.To(h.URL + path), CABundle: h.ca},
		FailurePolicy: &failure, SideEffects: ptr.To(admissionv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: ptr.To[int32](patience),
		AdmissionReviewVersions: []string{"v1"},
		ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"hook": name}},
	}
}

// configure registers the webhooks.
func (h *hookServer) configure(t *testing.T, config *rest.Config) {
	t.Helper()
	viaService := h.hook("service", "/deny", admissionv1.Fail)
	viaService.ClientConfig = admissionv1.WebhookClientConfig{
		CABundle: h.ca,
		Service:  &admissionv1.ServiceReference{Namespace: "default", Name: "hook", Path: ptr.To("/deny"), Port: ptr.To[int32](8443)},
	}
	slow, slowIgnored := h.hook("slow", "/slow", admissionv1.Fail), h.hook("slow-ignored", "/slow", admissionv1.Ignore)
	slow.TimeoutSeconds, slowIgnored.TimeoutSeconds = ptr.To[int32](1), ptr.To[int32](1)
	v1 := typedClient(t, config).AdmissionregistrationV1()
	_, err := v1.ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Webhooks: []admissionv1.ValidatingWebhook{
			h.hook("deny", "/deny", admissionv1.Fail), h.hook("allow", "/allow", admissionv1.Fail), viaService,
			h.hook("broken", "/broken", admissionv1.Fail), h.hook("broken-ignored", "/broken", admissionv1.Ignore),
			slow, slowIgnored,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := h.hook("mutate", "/mutate", admissionv1.Fail)
	_, err = v1.MutatingWebhookConfigurations().Create(t.Context(), &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: w.Name, Rules: w.Rules, ClientConfig: w.ClientConfig, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, ObjectSelector: w.ObjectSelector,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// labelled is an object that one webhook is asked about.
func labelled(r schema.GroupVersionResource, name, hook string) *unstructured.Unstructured {
	u := object(r, name, nil)
	u.SetLabels(map[string]string{"hook": hook})
	return u
}

// warnings collects those of a client.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) have(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.text, text)
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	h := newHookServer(t)
	config := start(t, core.Namespaces{}, core.ConfigMaps{}, widgetDefinition(),
		admissionregistration.ValidatingWebhookConfigurations{}, admissionregistration.MutatingWebhookConfigurations{},
		apples(), resolving(h), admit.MutatingWebhooks{ConfigFile: credentials(t)},
		admit.ValidatingWebhooks{ConfigFile: credentials(t)})
	h.configure(t, config)
	warned := &warnings{}
	config.WarningHandler = warned
	client := dynamicClient(t, config)
	eventually(t, "webhooks are asked", func() bool {
		_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "first", "deny"))
		got, err2 := tryObject(t, client, configMaps(), labelled(configMaps(), "first", "mutate"))
		return err != nil && strings.Contains(err.Error(), "no thanks") && err2 == nil && got.GetAnnotations()["hook"] == "was-here"
	})
	if !warned.have("be careful") {
		t.Error("the webhook's warning is missing")
	}
	cases := map[string]struct {
		reason, hook, want string
	}{
		"deny":           {"the webhook's message is the answer", "deny", `admission webhook "deny.example.com" denied the request: no thanks`},
		"allow":          {"it may say yes", "allow", ""},
		"service":        {"a Service is reached through the resolver, under its own name", "service", `admission webhook "service.example.com" denied the request: no thanks`},
		"broken":         {"failurePolicy Fail", "broken", `failed calling webhook "broken.example.com"`},
		"broken-ignored": {"failurePolicy Ignore", "broken-ignored", ""},
		"slow":           {"a timeout is a failure", "slow", "context deadline exceeded"},
		"slow-ignored":   {"which can be ignored", "slow-ignored", ""},
		"none":           {"the selector chooses", "", ""},
	}
	for name, c := range cases {
		for _, r := range []schema.GroupVersionResource{configMaps(), widgets()} {
			t.Run(name+"/"+r.Resource, func(t *testing.T) {
				t.Parallel()
				_, err := client.Resource(r).Namespace("default").Create(t.Context(), labelled(r, name, c.hook), metav1.CreateOptions{})
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
				}
			})
		}
	}
	t.Run("mutate", func(t *testing.T) {
		t.Parallel()
		mutated(t, client, h)
	})
	t.Run("other version", func(t *testing.T) {
		t.Parallel()
		equivalent(t, client, h)
	})
	t.Run("converted", func(t *testing.T) {
		t.Parallel()
		converted(t, client, h)
	})
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.tokens) == 0 || slices.ContainsFunc(h.tokens, func(token string) bool { return token != "Bearer secret" }) {
			t.Errorf("webhooks must be called with the credentials of the kubeconfig: %q", h.tokens)
		}
	})
}

// credentials is a kubeconfig with a token for every webhook.
func credentials(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "webhooks.kubeconfig")
	text := "apiVersion: v1\nkind: Config\nusers: [{name: '*', user: {token: secret}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// apples is a group of Go types with two versions.
func apples() controlplane.Part {
	return apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", v1alpha1.ToHub, v1alpha1.FromHub)))
}

// converted checks that Go types are reviewed in the version of the rule, where
// a field has another name.
func converted(t *testing.T, client dynamic.Interface, h *hookServer) {
	r := fruit.GroupVersion().WithResource("apples")
	gala := labelled(r, "gala", "mutate")
	gala.Object["spec"] = map[string]any{"variety": "Gala"}
	got, err := client.Resource(r).Namespace("default").Create(t.Context(), gala, metav1.CreateOptions{})
	if err != nil || got.GetAPIVersion() != r.GroupVersion().String() || got.GetAnnotations()["hook"] != "was-here" {
		t.Fatalf("got %v, %v", got, err)
	}
	seen := h.seen("gala")
	if len(seen) != 1 || seen[0].Kind.Version != "v1alpha1" || !strings.Contains(string(seen[0].Object.Raw), `"sort":"Gala"`) {
		t.Errorf("it must be reviewed as v1alpha1: %+v", seen)
	}
}

// mutated checks what a webhook does to an object, and what it is told of a dry run.
func mutated(t *testing.T, client dynamic.Interface, h *hookServer) {
	for _, r := range []schema.GroupVersionResource{configMaps(), widgets()} {
		got, err := client.Resource(r).Namespace("default").Create(t.Context(), labelled(r, "mutated", "mutate"), metav1.CreateOptions{})
		if err != nil || got.GetAnnotations()["hook"] != "was-here" {
			t.Errorf("%s: got %v, %v", r.Resource, got, err)
		}
		if _, err := tryObject(t, client, r, labelled(r, "dry-"+r.Resource, "mutate")); err != nil {
			t.Errorf("%s: dry run: %v", r.Resource, err)
		}
		if seen := h.seen("dry-" + r.Resource); len(seen) != 1 || seen[0].DryRun == nil || !*seen[0].DryRun {
			t.Errorf("%s: a dry run must be reviewed as one: %v", r.Resource, seen)
		}
	}
}

// equivalent checks that a rule for one version reviews the other one, converted.
func equivalent(t *testing.T, client dynamic.Interface, h *hookServer) {
	v2 := widgets()
	v2.Version = "v2"
	got, err := client.Resource(v2).Namespace("default").Create(t.Context(), labelled(v2, "second", "mutate"), metav1.CreateOptions{})
	if err != nil || got.GetAPIVersion() != "example.com/v2" || got.GetAnnotations()["hook"] != "was-here" {
		t.Fatalf("got %v, %v", got, err)
	}
	seen := h.seen("second")
	if len(seen) != 1 || seen[0].Kind.Version != "v1" || seen[0].RequestKind.Version != "v2" {
		t.Errorf("it must be reviewed as v1: %+v", seen)
	}
}

func TestBuildNamesTheMissingParts(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		part   controlplane.Part
		want   []string
	}{
		"validating webhooks": {"their informers would never sync", admit.ValidatingWebhooks{}, []string{
			"add core.Namespaces{}", "add admissionregistration.ValidatingWebhookConfigurations{}",
		}},
		"mutating webhooks": {"the same", admit.MutatingWebhooks{}, []string{
			"add core.Namespaces{}", "add admissionregistration.MutatingWebhookConfigurations{}",
		}},
		"validating policies": {"the same", admit.ValidatingPolicies{}, []string{
			"add core.Namespaces{}", "add admissionregistration.ValidatingAdmissionPolicies{}",
			"add admissionregistration.ValidatingAdmissionPolicyBindings{}",
		}},
		"mutating policies": {"the same", admit.MutatingPolicies{}, []string{
			"add core.Namespaces{}", "add admissionregistration.MutatingAdmissionPolicies{}",
			"add admissionregistration.MutatingAdmissionPolicyBindings{}",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := controlplane.New("incomplete").With(c.part).Build()
			if err == nil {
				t.Fatal(c.reason)
			}
			for _, want := range c.want {
				if strings.Count(err.Error(), want) != 1 {
					t.Errorf("%s: want %q once in %v", c.reason, want, err)
				}
			}
		})
	}
}
