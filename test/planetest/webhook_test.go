package planetest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	conversionwebhook "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// Kite is the hub, v2: it is measured in millimetres.
type Kite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KiteSpec `json:"spec,omitempty"`
}

// KiteSpec is what a kite is like.
type KiteSpec struct {
	Millimetres int64  `json:"millimetres,omitempty"`
	Colour      string `json:"colour,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (k *Kite) DeepCopyObject() runtime.Object {
	out := *k
	k.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// Hub implements conversion.Hub.
func (*Kite) Hub() {}

// OldKite is the spoke, v1: it is measured in metres.
type OldKite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OldKiteSpec `json:"spec,omitempty"`
}

// OldKiteSpec is what a kite was like.
type OldKiteSpec struct {
	Metres int64  `json:"metres,omitempty"`
	Colour string `json:"colour,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (k *OldKite) DeepCopyObject() runtime.Object {
	out := *k
	k.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// ConvertTo implements conversion.Convertible.
func (k *OldKite) ConvertTo(to conversion.Hub) error {
	hub, ok := to.(*Kite)
	if !ok {
		return errors.New("not a kite")
	}
	hub.ObjectMeta = k.ObjectMeta
	hub.Spec = KiteSpec{Millimetres: k.Spec.Metres * 1000, Colour: k.Spec.Colour}
	return nil
}

// ConvertFrom implements conversion.Convertible.
func (k *OldKite) ConvertFrom(from conversion.Hub) error {
	hub, ok := from.(*Kite)
	if !ok {
		return errors.New("not a kite")
	}
	k.ObjectMeta = hub.ObjectMeta
	k.Spec = OldKiteSpec{Metres: hub.Spec.Millimetres / 1000, Colour: hub.Spec.Colour}
	return nil
}

// Default implements admission.Defaulter.
func (*Kite) Default(_ context.Context, k *Kite) error {
	if k.Spec.Colour == "" {
		k.Spec.Colour = "red"
	}
	return nil
}

// ValidateCreate implements admission.Validator.
func (*Kite) ValidateCreate(_ context.Context, k *Kite) (admission.Warnings, error) {
	if k.Spec.Colour == "black" {
		return nil, errors.New("nobody sees a black kite at night")
	}
	return nil, nil
}

// ValidateUpdate implements admission.Validator.
func (k *Kite) ValidateUpdate(ctx context.Context, _, now *Kite) (admission.Warnings, error) {
	return k.ValidateCreate(ctx, now)
}

// ValidateDelete implements admission.Validator.
func (*Kite) ValidateDelete(context.Context, *Kite) (admission.Warnings, error) { return nil, nil }

func kiteKind() schema.GroupKind { return schema.GroupKind{Group: "example.com", Kind: "Kite"} }

func kiteScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	v1, v2 := schema.GroupVersion{Group: "example.com", Version: "v1"}, schema.GroupVersion{Group: "example.com", Version: "v2"}
	s.AddKnownTypeWithName(v1.WithKind("Kite"), &OldKite{})
	s.AddKnownTypeWithName(v2.WithKind("Kite"), &Kite{})
	metav1.AddToGroupVersion(s, v1)
	metav1.AddToGroupVersion(s, v2)
	return s
}

// kiteCRD is as controller-gen writes it: without a conversion.
func kiteCRD(conversion string) planetest.Source {
	return planetest.YAML(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kites.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: kites, singular: kite, kind: Kite, listKind: KiteList}
  ` + conversion + `
  versions:
  - name: v1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {metres: {type: integer}, colour: {type: string}}}}}}
  - name: v2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {millimetres: {type: integer}, colour: {type: string}}}}}}
`)
}

func kite(version, spec string) string {
	return "{apiVersion: example.com/" + version + ", kind: Kite, spec: " + spec + "}"
}

// TestConversion: types that are Hub and Convertible, by controller-runtime's own
// handler.
func TestConversion(t *testing.T) {
	t.Parallel()
	handler := conversionwebhook.NewWebhookHandler(kiteScheme(t), conversionwebhook.NewRegistry())
	crd := planetest.CRD(t, kiteCRD(""), planetest.ConvertWith(kiteKind(), handler))
	crd.
		Converts(kite("v1", "{metres: 3}"), "v2", kite("v2", "{millimetres: 3000}")).
		Converts(kite("v2", "{millimetres: 3500, colour: red}"), "v1", kite("v1", "{metres: 3, colour: red}")).
		RoundTrips(kite("v1", "{metres: 3, colour: red}"), "v2")
}

// kiteWebhooks is what controller-gen writes.
func kiteWebhooks() planetest.Source {
	const webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: KINDWebhookConfiguration
metadata: {name: VERB-webhook-configuration}
webhooks:
- name: VERB-kite.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: webhook-service, namespace: system, path: /VERB-example-com-v2-kite}}
  failurePolicy: Fail
  timeoutSeconds: 30 # on a machine that is busy with all tests
  sideEffects: None
  rules: [{apiGroups: [example.com], apiVersions: [v2], operations: [CREATE, UPDATE], resources: [kites]}]
`
	mutate := strings.NewReplacer("KIND", "Mutating", "VERB", "mutate").Replace(webhook)
	return planetest.YAML(mutate + "---" + strings.NewReplacer("KIND", "Validating", "VERB", "validate").Replace(webhook))
}

// TestAdmission: handlers of package admission, one by one.
func TestAdmission(t *testing.T) {
	t.Parallel()
	s := kiteScheme(t)
	mux := http.NewServeMux()
	mux.Handle("/mutate-example-com-v2-kite", admission.WithDefaulter[*Kite](s, &Kite{}))
	mux.Handle("/validate-example-com-v2-kite", admission.WithValidator[*Kite](s, &Kite{}))
	plane := planetest.Start(t, planetest.WithWebhooks(mux, kiteWebhooks()),
		planetest.ConvertWith(kiteKind(), conversionwebhook.NewWebhookHandler(s, conversionwebhook.NewRegistry())))
	plane.CRD(t, kiteCRD("")).
		Defaults(kite("v2", "{millimetres: 1}"), kite("v2", "{millimetres: 1, colour: red}")).
		Defaults(kite("v1", "{metres: 1}"), kite("v1", "{metres: 1, colour: red}")). // by the webhook for v2
		Rejects(kite("v2", "{colour: black}"), "nobody sees a black kite at night")
}

// inProcess is the webhook server of a manager whose handlers are asked in the
// process: it does not listen.
type inProcess struct{ webhook.Server }

// Start does what a server does that has nothing to serve.
func (inProcess) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// StartedChecker has it always started.
func (inProcess) StartedChecker() healthz.Checker { return healthz.Ping }

// TestManager: the webhooks that a project registers with its manager, and its
// conversions with them, at the Service that its manifests name.
func TestManager(t *testing.T) {
	t.Parallel()
	s := kiteScheme(t)
	mux := http.NewServeMux()
	plane := planetest.Start(t, planetest.WithWebhooks(mux, kiteWebhooks()))
	manager, err := controllerruntime.NewManager(plane.Config(), controllerruntime.Options{
		Scheme: s, Metrics: metrics.Options{BindAddress: "0"},
		WebhookServer: inProcess{webhook.NewServer(webhook.Options{WebhookMux: mux})},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = controllerruntime.NewWebhookManagedBy(manager, &Kite{}).WithDefaulter(&Kite{}).WithValidator(&Kite{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- manager.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	const service = "conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: webhook-service, namespace: system, path: /convert}}}}"
	crd := plane.CRD(t, kiteCRD(service))
	crd.RoundTrips(kite("v1", "{metres: 3, colour: blue}"), "v2").
		Rejects(kite("v1", "{colour: black}"), "nobody sees a black kite at night")
	made := &Kite{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}, Spec: KiteSpec{Millimetres: 2000}}
	if err := manager.GetClient().Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if made.Spec.Colour != "red" {
		t.Errorf("the colour is %q", made.Spec.Colour)
	}
	old := &OldKite{}
	if err := manager.GetAPIReader().Get(t.Context(), client.ObjectKeyFromObject(made), old); err != nil || old.Spec.Metres != 2 {
		t.Errorf("as v1: %v, %v", old, err)
	}
}
