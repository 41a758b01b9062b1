package admissionregistration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func goodWebhooks() *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{
		Name: "a.example.com", Rules: []admissionv1.RuleWithOperations{rule()},
		ClientConfig:            admissionv1.WebhookClientConfig{URL: ptr.To("https://example.com/hook")},
		SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}}}
}

func TestDefaultWebhooks(t *testing.T) {
	t.Parallel()
	got := goodWebhooks()
	got.Webhooks[0].ClientConfig = admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "n", Name: "s"}}
	want := got.DeepCopy()
	for _, h := range mutatingHooks(got) {
		h.setDefaults()
	}
	w := &want.Webhooks[0]
	w.FailurePolicy, w.MatchPolicy, w.TimeoutSeconds = ptr.To(admissionv1.Fail), ptr.To(admissionv1.Equivalent), ptr.To[int32](10)
	w.NamespaceSelector, w.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	w.ReinvocationPolicy = ptr.To(admissionv1.NeverReinvocationPolicy)
	w.Rules[0].Scope, w.ClientConfig.Service.Port = ptr.To(admissionv1.AllScopes), ptr.To[int32](443)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRulesWithoutEffect(t *testing.T) {
	t.Parallel()
	c := goodWebhooks()
	if got := withoutEffect(mutatingHooks(c)); len(got) > 0 {
		t.Errorf("a rule for other resources is warned of: %v", got)
	}
	c.Webhooks[0].Rules = append(c.Webhooks[0].Rules, admissionv1.RuleWithOperations{Rule: admissionv1.Rule{
		APIGroups: []string{"", "authorization.k8s.io"}, Resources: []string{"pods", "subjectaccessreviews"},
	}}, admissionv1.RuleWithOperations{Rule: admissionv1.Rule{APIGroups: []string{"*"}, Resources: []string{"*"}}})
	want := []string{"webhooks[0].rules[1]: webhooks are not called for subjectaccessreviews.authorization.k8s.io: this rule has no effect on it"}
	if diff := cmp.Diff(want, withoutEffect(mutatingHooks(c))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestValidateWebhooks(t *testing.T) {
	t.Parallel()
	type w = admissionv1.MutatingWebhook
	first := func(change func(*w)) func(*admissionv1.MutatingWebhookConfiguration) {
		return func(c *admissionv1.MutatingWebhookConfiguration) { change(&c.Webhooks[0]) }
	}
	validate := func(c *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
		return validateHooks(mutatingHooks(c), nil)
	}
	checkCases(t, goodWebhooks, validate, map[string]validCase[admissionv1.MutatingWebhookConfiguration]{
		"good":  {"nothing is wrong", first(func(*w) {}), ""},
		"empty": {"a configuration may have no webhook yet", func(c *admissionv1.MutatingWebhookConfiguration) { c.Webhooks = nil }, ""},
		"name": {
			"names are fully qualified", first(func(h *w) { h.Name = "a" }),
			`webhooks[0].name: Invalid value: "a": should be a domain with at least three segments separated by dots`,
		},
		"twice": {
			"names are unique", func(c *admissionv1.MutatingWebhookConfiguration) { c.Webhooks = append(c.Webhooks, c.Webhooks[0]) },
			`webhooks[1].name: Duplicate value: "a.example.com"`,
		},
		"side effects missing": {
			"a webhook says what it does on a dry run", first(func(h *w) { h.SideEffects = nil }),
			`webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun`,
		},
		"side effects": {
			"v1 has no webhooks that cannot run dry", first(func(h *w) { h.SideEffects = ptr.To(admissionv1.SideEffectClassSome) }),
			`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`,
		},
		"timeout": {
			"requests end", first(func(h *w) { h.TimeoutSeconds = ptr.To[int32](31) }),
			`webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds`,
		},
		"policies": {
			"each is one of two", first(func(h *w) {
				h.FailurePolicy, h.MatchPolicy = ptr.To[admissionv1.FailurePolicyType]("Maybe"), ptr.To[admissionv1.MatchPolicyType]("Some")
				h.ReinvocationPolicy = ptr.To[admissionv1.ReinvocationPolicyType]("Often")
			}),
			`[webhooks[0].failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore", ` +
				`webhooks[0].matchPolicy: Unsupported value: "Some": supported values: "Equivalent", "Exact", ` +
				`webhooks[0].reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"]`,
		},
		"client": {
			"somebody must be asked", first(func(h *w) { h.ClientConfig.URL = nil }),
			`webhooks[0].clientConfig: Required value: exactly one of url or service is required`,
		},
		"http": {
			"objects hold secrets", first(func(h *w) { h.ClientConfig.URL = ptr.To("http://example.com") }),
			`webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`,
		},
		"service": {
			"it has a name and a namespace", first(func(h *w) {
				h.ClientConfig = admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Port: ptr.To[int32](443)}}
			}),
			`[webhooks[0].clientConfig.service.name: Required value, webhooks[0].clientConfig.service.namespace: Required value]`,
		},
		"review versions": {
			"one must be known", first(func(h *w) { h.AdmissionReviewVersions = []string{"v2"} }),
			`webhooks[0].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1`,
		},
		"no review version": {
			"one must be given", first(func(h *w) { h.AdmissionReviewVersions = nil }),
			`webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1`,
		},
		"wildcards": {
			"* is alone", first(func(h *w) {
				h.Rules[0].Operations = append(h.Rules[0].Operations, "*")
				h.Rules[0].Resources = append(h.Rules[0].Resources, "*")
			}),
			`[webhooks[0].rules[0].operations: Invalid value: ["CREATE","*"]: if '*' is present, must not specify other operations, ` +
				`webhooks[0].rules[0].resources: Invalid value: ["configmaps","*"]: if '*' is present, must not specify other resources without subresources]`,
		},
		"empty rule": {
			"a rule says everything", first(func(h *w) { h.Rules[0] = admissionv1.RuleWithOperations{} }),
			`[webhooks[0].rules[0].operations: Required value, webhooks[0].rules[0].apiGroups: Required value, ` +
				`webhooks[0].rules[0].apiVersions: Required value, webhooks[0].rules[0].resources: Required value]`,
		},
		"covered": {
			"pods/* covers pods/log", first(func(h *w) { h.Rules[0].Resources = []string{"pods/*", "pods/log"} }),
			`webhooks[0].rules[0].resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log`,
		},
		"conditions": {
			"they are boolean and have names", first(func(h *w) {
				h.MatchConditions = []admissionv1.MatchCondition{{Name: "n", Expression: "1"}, {Expression: "true"}}
			}),
			`[webhooks[0].matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int, webhooks[0].matchConditions[1].name: Required value]`,
		},
		"good condition": {"everything about the request can be asked", first(func(h *w) {
			h.MatchConditions = []admissionv1.MatchCondition{{Name: "n", Expression: "request.name != 'x' && authorizer.group('').resource('pods').check('get').allowed()"}}
		}), ""},
	})
}

func TestUnchangedWebhooksStay(t *testing.T) {
	t.Parallel()
	bad := goodWebhooks()
	bad.Webhooks[0].SideEffects = nil
	if errs := validateHooks(mutatingHooks(bad), mutatingHooks(bad.DeepCopy())); len(errs) > 0 {
		t.Errorf("what did not change is not validated again: %v", errs)
	}
	changed := bad.DeepCopy()
	changed.Webhooks[0].ReinvocationPolicy = ptr.To(admissionv1.IfNeededReinvocationPolicy)
	if errs := validateHooks(mutatingHooks(changed), mutatingHooks(bad)); len(errs) != 1 {
		t.Errorf("what changed is: %v", errs)
	}
}
