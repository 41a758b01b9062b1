package planetest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// webhookManifests are what controller-gen writes, and an older scaffold's CA bundle.
// Their time is for a machine that is busy with all tests.
const webhookManifests = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mutating-webhook-configuration}
webhooks:
- name: label.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: webhook-service, namespace: system, path: /label, port: 8443}, caBundle: Cg==}
  failurePolicy: Fail
  timeoutSeconds: 30
  sideEffects: None
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validating-webhook-configuration}
webhooks:
- name: refuse.example.com
  admissionReviewVersions: [v1]
  clientConfig: {url: "https://127.0.0.1:9443/refuse"}
  failurePolicy: Fail
  timeoutSeconds: 30
  sideEffects: None
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["*"]}]
`

// review is a handler of AdmissionReviews.
func review(f func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		in.Response = f(in.Request)
		in.Response.UID = in.Request.UID
		in.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(in)
	})
}

// asked remembers for what webhooks were asked.
type asked struct {
	mu  sync.Mutex
	all []string
}

func (a *asked) add(path string, r *admissionv1.AdmissionRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, fmt.Sprint(path, " ", r.Resource.Resource, r.SubResource, " ", r.Name))
}

func hooks(a *asked) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /label", review(func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		a.add("/label", r)
		patch := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: &patch, Patch: []byte(`[{"op": "add", "path": "/metadata/labels", "value": {"seen": "true"}}]`),
		}
	}))
	mux.Handle("POST /refuse", review(func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		a.add("/refuse", r)
		if strings.Contains(r.Name, "bad") {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "names are good"}}
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	}))
	return mux
}

func admission() controlplane.Part {
	return controlplane.Parts{
		namespaces(), crd.Definitions{}, admissionregistration.All(), admit.MutatingWebhooks{}, admit.ValidatingWebhooks{},
	}
}

// TestWebhooks: webhooks of handlers are asked from the first request on, and for
// nothing that the plane does to find out.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string]controlplane.Parts{"few parts": {admission()}, "defaults": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := &asked{}
			files := fstest.MapFS{"manifests.yaml": {Data: []byte(webhookManifests)}}
			plane := planetest.Options{NoDefaults: parts != nil}.Start(t, parts, planetest.WithWebhooks(hooks(seen), planetest.FS(files)))
			configMaps := plane.Client().CoreV1().ConfigMaps("default")
			made, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "good"}}, metav1.CreateOptions{})
			must(t, err)
			if made.Labels["seen"] != "true" {
				t.Errorf("the labels are %v", made.Labels)
			}
			_, err = configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, metav1.CreateOptions{})
			contains(t, fmt.Sprint(err), `admission webhook "refuse.example.com" denied the request: names are good`)
			configurations, err := plane.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
			must(t, err)
			if len(configurations.Items) != 1 {
				t.Errorf("there are %d configurations", len(configurations.Items))
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if got := strings.Join(seen.all, "\n"); strings.Contains(got, "status") || !strings.Contains(got, "/label configmaps good\n/refuse configmaps good\n") {
				t.Errorf("the webhooks were asked for:\n%s", got)
			}
		})
	}
}

// TestWebhooksOfTwoProjects: handlers of different Services are asked for theirs.
func TestWebhooksOfTwoProjects(t *testing.T) {
	t.Parallel()
	one := &asked{}
	two := &asked{}
	others := strings.NewReplacer("configuration}", "other}", "webhook-service", "other-service", "9443", "9444").Replace(webhookManifests)
	plane := planetest.Options{NoDefaults: true}.Start(t, admission(), planetest.WithWebhooks(hooks(one), planetest.YAML(webhookManifests)), planetest.WithWebhooks(hooks(two), planetest.YAML(others)))
	plane.Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"))
	for name, a := range map[string]*asked{"one": one, "two": two} {
		a.mu.Lock()
		contains(t, strings.Join(a.all, "\n"), "/label configmaps x", "/refuse configmaps x")
		if t.Failed() {
			t.Log(name)
		}
		a.mu.Unlock()
	}
}

// TestWebhookPanics: a handler that panics is a webhook that does not answer, and
// no end of the test process.
func TestWebhookPanics(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	plane := planetest.Options{NoDefaults: true}.Start(t, admission(), planetest.WithWebhooks(handler, planetest.YAML(webhookManifests)))
	got := failure(t, func(t planetest.TB) {
		plane.Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"))
	})
	contains(t, got, `failed calling webhook "label.example.com"`, "on purpose")
}

func TestWebhooksFail(t *testing.T) {
	t.Parallel()
	const head = "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: x}, webhooks: ["
	ok := http.NotFoundHandler()
	tests := map[string]struct {
		reason string
		part   controlplane.Part
		want   string
	}{
		"no handler":    {"nobody would answer", planetest.WithWebhooks(nil, planetest.YAML(webhookManifests)), "the handler is nil"},
		"nothing":       {"an empty file is a mistake", planetest.WithWebhooks(ok, planetest.YAML("")), "there is no ValidatingWebhookConfiguration"},
		"another kind":  {"it would be left out", planetest.WithWebhooks(ok, planetest.YAML("{apiVersion: v1, kind: Service, metadata: {name: x}}")), "document 1: Service x: it is of v1, not a webhook configuration"},
		"no name":       {"it cannot be written", planetest.WithWebhooks(ok, planetest.YAML(strings.Replace(head, "name: x", "a: b", 1)+"]}")), "metadata.name is missing"},
		"no client":     {"nobody would be asked", planetest.WithWebhooks(ok, planetest.YAML(head+"{name: a.example.com}]}")), "webhooks[0].clientConfig: neither a service nor a url"},
		"no object":     {"it cannot be read", planetest.WithWebhooks(ok, planetest.YAML(head+"1]}")), "webhooks[0] is float64"},
		"url":           {"it cannot be reached", planetest.WithWebhooks(ok, planetest.YAML(head+"{clientConfig: {url: '::'}}]}")), "missing protocol scheme"},
		"missing file":  {"what cannot be read is told", planetest.WithWebhooks(ok, planetest.Files("testdata/nowhere.yaml")), "no such file"},
		"not valid":     {"what the server says is told", planetest.WithWebhooks(ok, planetest.YAML(head+"{name: a.example.com, clientConfig: {url: 'https://x'}}]}")), "sideEffects"},
		"not admission": {"a plane that asks no webhooks needs a part", planetest.WithWebhooks(ok, planetest.YAML(webhookManifests)), "add admissionregistration.MutatingWebhookConfigurations{}"},
		"two handlers": {
			"only one would be asked",
			controlplane.Parts{planetest.WithWebhooks(ok, planetest.YAML(webhookManifests)), planetest.WithWebhooks(ok, planetest.YAML(webhookManifests))},
			`handler of host "webhook-service.system.svc:8443"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := admission()
			if name == "not admission" {
				parts = namespaces()
			}
			got := failure(t, func(t planetest.TB) { planetest.Options{NoDefaults: true}.Start(t, parts, test.part) })
			contains(t, got, "planetest: ", test.want)
			if t.Failed() {
				t.Log(test.reason)
			}
		})
	}
}
