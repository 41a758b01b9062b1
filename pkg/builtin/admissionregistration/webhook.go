package admissionregistration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// ValidatingWebhookConfigurations is the part that serves
// validatingwebhookconfigurations (admissionregistration.k8s.io/v1). The part
// admit.ValidatingWebhooks obeys them.
type ValidatingWebhookConfigurations struct{}

// Install adds validatingwebhookconfigurations to the group.
func (ValidatingWebhookConfigurations) Install(p *controlplane.Plan) error {
	return shared().Serve(p, validatingWebhooks())
}

// MutatingWebhookConfigurations is the part that serves
// mutatingwebhookconfigurations (admissionregistration.k8s.io/v1). The part
// admit.MutatingWebhooks obeys them.
type MutatingWebhookConfigurations struct{}

// Install adds mutatingwebhookconfigurations to the group.
func (MutatingWebhookConfigurations) Install(p *controlplane.Plan) error {
	return shared().Serve(p, mutatingWebhooks())
}

func validatingWebhooks() *apis.Definition {
	return apis.Resource[admissionv1.ValidatingWebhookConfiguration, admissionv1.ValidatingWebhookConfigurationList](
		"validatingwebhookconfigurations", webhookOptions(validatingHooks)...)
}

func mutatingWebhooks() *apis.Definition {
	return apis.Resource[admissionv1.MutatingWebhookConfiguration, admissionv1.MutatingWebhookConfigurationList](
		"mutatingwebhookconfigurations", webhookOptions(mutatingHooks)...)
}

func webhookOptions[T any](hooks func(*T) []hook) []apis.Option {
	return options(func(c, old *T) field.ErrorList {
		if old == nil {
			return validateHooks(hooks(c), nil)
		}
		return validateHooks(hooks(c), hooks(old))
	}, apis.Default(func(c *T) {
		for _, h := range hooks(c) {
			h.setDefaults()
		}
	}), apis.Warn(func(_ context.Context, c *T) []string { return withoutEffect(hooks(c)) }),
		apis.Columns(func(c *T) []any { return []any{int64(len(hooks(c)))} }, columns("Webhooks")...))
}

// hook is a webhook of either kind: the fields of a MutatingWebhook are those of
// a ValidatingWebhook and one more.
type hook struct {
	*admissionv1.ValidatingWebhook
	// reinvocation is nil for a validating webhook.
	reinvocation **admissionv1.ReinvocationPolicyType
	// write puts back what was changed.
	write func()
}

func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []hook {
	hooks := make([]hook, 0, len(c.Webhooks))
	for i := range c.Webhooks {
		hooks = append(hooks, hook{ValidatingWebhook: &c.Webhooks[i], write: func() {}})
	}
	return hooks
}

func mutatingHooks(c *admissionv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, 0, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		common := &admissionv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}
		// Defaulting writes to the other fields through pointers, which both share.
		hooks = append(hooks, hook{ValidatingWebhook: common, reinvocation: &w.ReinvocationPolicy, write: func() {
			w.FailurePolicy, w.MatchPolicy, w.TimeoutSeconds = common.FailurePolicy, common.MatchPolicy, common.TimeoutSeconds
			w.NamespaceSelector, w.ObjectSelector = common.NamespaceSelector, common.ObjectSelector
		}})
	}
	return hooks
}

// withoutEffect warns of rules for resources that no webhook is asked about.
func withoutEffect(hooks []hook) []string {
	var warnings []string
	for i, h := range hooks {
		for j, rule := range h.Rules {
			at := field.NewPath("webhooks").Index(i).Child("rules").Index(j)
			for _, r := range reviews(rule) {
				warnings = append(warnings, fmt.Sprintf("%s: webhooks are not called for %s: this rule has no effect on it", at, r))
			}
		}
	}
	return warnings
}

func reviews(rule admissionv1.RuleWithOperations) (named []schema.GroupResource) {
	for _, group := range rule.APIGroups {
		for _, name := range rule.Resources {
			if r := (schema.GroupResource{Group: group, Resource: name}); controlplane.IsReview(r) {
				named = append(named, r)
			}
		}
	}
	return named
}

func (h hook) setDefaults() {
	setDefault(&h.FailurePolicy, admissionv1.Fail)
	setDefault(&h.MatchPolicy, admissionv1.Equivalent)
	setDefault(&h.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&h.ObjectSelector, metav1.LabelSelector{})
	setDefault(&h.TimeoutSeconds, 10)
	if h.reinvocation != nil {
		setDefault(h.reinvocation, admissionv1.NeverReinvocationPolicy)
	}
	for i := range h.Rules {
		setDefault(&h.Rules[i].Scope, admissionv1.AllScopes)
	}
	if s := h.ClientConfig.Service; s != nil {
		setDefault(&s.Port, 443)
	}
	h.write()
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// reviewVersions are the versions of AdmissionReview that the plugins speak.
func reviewVersions() []string { return []string{"v1", "v1beta1"} }

func validateHooks(hooks, old []hook) field.ErrorList {
	if old != nil && slices.EqualFunc(hooks, old, func(a, b hook) bool {
		return equality.Semantic.DeepEqual(a.ValidatingWebhook, b.ValidatingWebhook) &&
			equality.Semantic.DeepEqual(a.reinvocation, b.reinvocation)
	}) {
		return nil
	}
	now, before := ofHooks(hooks), ofHooks(old)
	if errs := tooMany(now, before, field.NewPath("webhooks")); errs != nil {
		return errs
	}
	known := knownIn(before)
	var errs field.ErrorList
	names := map[string]bool{}
	for i, h := range hooks {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, h.validate(known, at)...)
		if h.Name != "" && names[h.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), h.Name))
		}
		names[h.Name] = true
	}
	return errs
}

func (h hook) validate(known expressions, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), h.Name)
	for i, rule := range h.Rules {
		errs = append(errs, validateRule(rule, operations(), at.Child("rules").Index(i))...)
	}
	errs = append(errs, check.OptionalOneOf(at.Child("failurePolicy"), h.FailurePolicy, admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, check.OptionalOneOf(at.Child("matchPolicy"), h.MatchPolicy, admissionv1.Equivalent, admissionv1.Exact)...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, check.OptionalOneOf(at.Child("sideEffects"), h.SideEffects,
		admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)...)
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, check.Selector(at.Child("namespaceSelector"), h.NamespaceSelector)...)
	errs = append(errs, check.Selector(at.Child("objectSelector"), h.ObjectSelector)...)
	if h.reinvocation != nil {
		errs = append(errs, check.OptionalOneOf(at.Child("reinvocationPolicy"), *h.reinvocation,
			admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	}
	errs = append(errs, validateClient(h.ClientConfig, at.Child("clientConfig"))...)
	errs = append(errs, validateReviewVersions(h.AdmissionReviewVersions, at.Child("admissionReviewVersions"))...)
	return append(errs, validateConditions(h.MatchConditions, false, known, at.Child("matchConditions"))...)
}

func validateClient(c admissionv1.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhook.ValidateWebhookURL(at.Child("url"), *c.URL, true)
	}
	s := c.Service
	return webhook.ValidateWebhookService(at.Child("service"), s.Namespace, s.Name, s.Path, ptr.Deref(s.Port, 0))
}

func validateReviewVersions(versions []string, at *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of "+strings.Join(reviewVersions(), ", "))}
	}
	var errs field.ErrorList
	known := false
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		errs = append(errs, check.Messages(at.Index(i), v, validation.IsDNS1035Label(v))...)
		known = known || slices.Contains(reviewVersions(), v)
	}
	if !known {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of "+strings.Join(reviewVersions(), ", ")))
	}
	return errs
}
