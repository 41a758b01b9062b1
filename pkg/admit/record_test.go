package admit_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// record keeps the annotations of audit events, by the name of the object.
type record struct {
	mu          sync.Mutex
	annotations map[string]map[string]string
}

// Install declares the record as an audit back end.
func (r *record) Install(p *controlplane.Plan) error {
	p.Audit("record", r, policy.NewFakePolicyRuleEvaluator(auditinternal.LevelRequest, nil))
	return nil
}

// ProcessEvents implements audit.Backend.
func (r *record) ProcessEvents(events ...*auditinternal.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if e.Stage == auditinternal.StageResponseComplete && e.ObjectRef != nil && e.Verb == "create" {
			r.annotations[e.ObjectRef.Name] = e.Annotations
		}
	}
	return true
}

func (*record) Run(<-chan struct{}) error { return nil }
func (*record) Shutdown()                 {}
func (*record) String() string            { return "record" }

// of are the annotations of one event about an object.
func (r *record) of(name string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.annotations[name])
}

// among are those whose keys have one of the prefixes.
func among(annotations map[string]string, prefixes ...string) map[string]string {
	got := map[string]string{}
	for key, value := range annotations {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			got[key] = value
		}
	}
	return got
}

// TestRecord: what webhooks and policies say besides yes and no is in warnings
// and in audit events.
func TestRecord(t *testing.T) {
	t.Parallel()
	h, r, warned := newHookServer(t), &record{annotations: map[string]map[string]string{}}, &warnings{}
	config := start(t, everything(), r)
	config.WarningHandler = warned
	registerHooks(t, config, h.hook("annotate", "/annotate", admissionv1.Fail))
	client, dyn := typedClient(t, config), dynamicClient(t, config)
	createBound(t, client, "watchful", admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: matches(configMaps()),
		Validations:      []admissionv1.Validation{{Expression: "object.metadata.name.startsWith('good')", Message: "not good"}},
		AuditAnnotations: []admissionv1.AuditAnnotation{{Key: "who", ValueExpression: "'it is ' + object.metadata.name"}},
	}, admissionv1.ValidatingAdmissionPolicyBindingSpec{ValidationActions: []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}})
	// The record of a request is made after its answer: that of an earlier one may
	// still replace it.
	var recorded map[string]string
	eventually(t, "the webhook and the policy are asked", func() bool {
		u := labelled(configMaps(), "bad-one", "annotate")
		_, err := tryObject(t, dyn, configMaps(), u)
		recorded = r.of("bad-one")
		return err == nil && len(among(recorded, "annotate.example.com/")) > 0 && len(among(recorded, "watchful/")) > 0
	})
	if !warned.have("Validation failed for ValidatingAdmissionPolicy 'watchful' with binding 'watchful': not good") {
		t.Errorf("warnings: %q", warned.text)
	}
	want := map[string]string{"annotate.example.com/seen": "yes", "watchful/who": "it is bad-one"}
	if diff := cmp.Diff(want, among(recorded, "annotate.example.com/", "watchful/")); diff != "" {
		t.Errorf("audit annotations: -want +got:\n%s", diff)
	}
	failure := among(recorded, "validation.policy.admission.k8s.io/validation_failure")
	if text := failure["validation.policy.admission.k8s.io/validation_failure"]; !strings.Contains(text, `"message":"not good"`) {
		t.Errorf("the failure is recorded: %q", failure)
	}
}

// createBound makes a policy and a binding of the same name.
func createBound(
	t *testing.T, client kubernetes.Interface, name string,
	spec admissionv1.ValidatingAdmissionPolicySpec, binding admissionv1.ValidatingAdmissionPolicyBindingSpec,
) {
	t.Helper()
	meta, v1 := metav1.ObjectMeta{Name: name}, client.AdmissionregistrationV1()
	binding.PolicyName = name
	if _, err := v1.ValidatingAdmissionPolicies().Create(t.Context(),
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v1.ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: binding}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestFailurePolicies: an expression that cannot be evaluated, and parameters
// that are not there, are for the policy to decide about.
func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	config := start(t, everything())
	client, dyn := typedClient(t, config), dynamicClient(t, config)
	cases := map[string]struct {
		reason  string
		failure admissionv1.FailurePolicyType
		ref     *admissionv1.ParamRef
		want    string
	}{
		"error-fail":     {"failurePolicy Fail", admissionv1.Fail, nil, "no such key: absent"},
		"error-ignore":   {"failurePolicy Ignore", admissionv1.Ignore, nil, ""},
		"params-deny":    {"parameterNotFoundAction Deny", admissionv1.Fail, absent(admissionv1.DenyAction), "no params found"},
		"params-allow":   {"parameterNotFoundAction Allow", admissionv1.Fail, absent(admissionv1.AllowAction), ""},
		"params-ignored": {"failurePolicy Ignore comes first", admissionv1.Ignore, absent(admissionv1.DenyAction), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: &c.failure, MatchConstraints: matchesLabel(name),
				Validations: []admissionv1.Validation{{Expression: "object.metadata.labels.absent == 'x'"}},
			}
			if c.ref != nil {
				spec.ParamKind = &admissionv1.ParamKind{APIVersion: "example.com/v1", Kind: "Widget"}
			}
			createBound(t, client, name, spec, admissionv1.ValidatingAdmissionPolicyBindingSpec{
				ParamRef: c.ref, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			})
			// A second policy tells when the first is known too.
			createValidating(t, client, "z-"+name, admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: matchesLabel("z-" + name), Validations: []admissionv1.Validation{{Expression: "false", Message: "known"}},
			}, nil)
			eventually(t, "the policy is known", func() bool {
				_, err := tryObject(t, dyn, widgets(), labelled(widgets(), "tried", "z-"+name))
				return refused(err, "known")
			})
			// The informer of the parameters may not be synced yet, which is refused too.
			var err error
			defer func() {
				if t.Failed() {
					t.Logf("want %q, got %v", c.want, err)
				}
			}()
			eventually(t, c.reason, func() bool {
				_, err = tryObject(t, dyn, widgets(), labelled(widgets(), "tried", name))
				return c.want == "" && err == nil || c.want != "" && err != nil && strings.Contains(err.Error(), c.want)
			})
		})
	}
}

// matchesLabel are the widgets with a label. It is looked at before parameters
// are, match conditions are after them.
func matchesLabel(value string) *admissionv1.MatchResources {
	m := matches(widgets())
	m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"hook": value}}
	return m
}

func absent(action admissionv1.ParameterNotFoundActionType) *admissionv1.ParamRef {
	return &admissionv1.ParamRef{Name: "absent", Namespace: "default", ParameterNotFoundAction: ptr.To(action)}
}

// TestTypeChecking: the status of a policy says what is wrong with its
// expressions about custom resources.
func TestTypeChecking(t *testing.T) {
	t.Parallel()
	policies := typedClient(t, start(t, everything())).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	_, err := policies.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "odd"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: matches(widgets()), Validations: []admissionv1.Validation{{Expression: "object.spec.sise < 10"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got *admissionv1.ValidatingAdmissionPolicy
	eventually(t, "it is checked", func() bool {
		got, err = policies.Get(t.Context(), "odd", metav1.GetOptions{})
		return err == nil && got.Status.ObservedGeneration == got.Generation
	})
	if c := got.Status.TypeChecking; c == nil || len(c.ExpressionWarnings) != 1 || !strings.Contains(c.ExpressionWarnings[0].Warning, "undefined field 'sise'") {
		t.Errorf("got %v", got.Status)
	}
}
