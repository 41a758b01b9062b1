package admit_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// nowhere is an address at which nothing listens.
const nowhere = "https://127.0.0.1:1/"

func registerHooks(t *testing.T, config *rest.Config, hooks ...admissionv1.ValidatingWebhook) {
	t.Helper()
	_, err := typedClient(t, config).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: hooks}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// hookParts are the parts of a plane with webhooks.
func hookParts(webhooks ...controlplane.Part) controlplane.Parts {
	return append(controlplane.Parts{
		core.Namespaces{},
		core.ConfigMaps{},
		admissionregistration.ValidatingWebhookConfigurations{},
	}, webhooks...)
}

// TestUnreachable: a webhook that cannot be reached is for the failure policy,
// be it that nothing listens, that no resolver knows it, or that it is denied.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	h := newHookServer(t)
	cases := map[string]struct {
		reason   string
		part     admit.ValidatingWebhooks
		resolver controlplane.ServiceResolver
		client   admissionv1.WebhookClientConfig
		want     string
	}{
		"nothing listens": {
			reason: "the connection is refused",
			client: admissionv1.WebhookClientConfig{URL: ptr.To(nowhere)}, want: "connect: connection refused",
		},
		"no resolver": {
			reason: "Services need one", client: hookService(),
			want: `service "default/hook": the server resolves no Services`,
		},
		"denied address": {
			reason: "the list holds for addresses", part: admit.ValidatingWebhooks{Deny: admit.PrivateNetworks()},
			client: admissionv1.WebhookClientConfig{URL: ptr.To(h.URL + "/allow"), CABundle: h.ca},
			want:   "connections to 127.0.0.1 are not allowed: the server denies 127.0.0.0/8",
		},
		"denied name": {
			reason: "the list holds for what names resolve to", part: admit.ValidatingWebhooks{Deny: admit.PrivateNetworks()},
			client: admissionv1.WebhookClientConfig{URL: ptr.To(strings.Replace(h.URL, "127.0.0.1", "localhost", 1) + "/allow"), CABundle: h.ca},
			want:   "connections to ",
		},
		"denied service": {
			reason: "the list holds for Services", part: admit.ValidatingWebhooks{Deny: admit.PrivateNetworks()}, resolver: h,
			client: hookService(), want: "connections to 127.0.0.1 are not allowed",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := hookParts(c.part)
			if c.resolver != nil {
				parts = append(parts, resolving(c.resolver))
			}
			config := start(t, parts)
			fail, ignore := h.hook("fail", "/", admissionv1.Fail), h.hook("ignore", "/", admissionv1.Ignore)
			fail.ClientConfig, ignore.ClientConfig = c.client, c.client
			registerHooks(t, config, fail, ignore)
			client := dynamicClient(t, config)
			eventually(t, "the webhook is asked", func() bool {
				_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "tried", "fail"))
				return apierrors.IsInternalError(err) // until webhooks are ready nobody is let through
			})
			_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "tried", "fail"))
			if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
			}
			if _, err := tryObject(t, client, configMaps(), labelled(configMaps(), "tried", "ignore")); err != nil {
				t.Errorf("%s: ignored: %v", c.reason, err)
			}
		})
	}
	t.Cleanup(func() { // when all cases are done
		if len(h.seen("tried")) > 0 {
			t.Error("a webhook that is denied was asked")
		}
	})
}

func hookService() admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "hook", Port: ptr.To[int32](8443)}}
}

// TestAnswered: a Service for which the plane has a handler is asked there, without a
// resolver and without a connection.
func TestAnswered(t *testing.T) {
	t.Parallel()
	h := newHookServer(t)
	answer := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.ServeHost("hook.default.svc:8443", http.HandlerFunc(h.answer))
		return nil
	})
	config := start(t, hookParts(answer, admit.ValidatingWebhooks{Deny: admit.PrivateNetworks()}))
	deny := h.hook("deny", "/", admissionv1.Fail)
	deny.ClientConfig = hookService()
	deny.ClientConfig.Service.Path = ptr.To("/deny")
	registerHooks(t, config, deny)
	client := dynamicClient(t, config)
	eventually(t, "the handler denies", func() bool {
		_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "tried", "deny"))
		return err != nil && strings.Contains(err.Error(), "no thanks")
	})
}

// TestReviewsAreNotAskedAbout: a webhook that denies everything does not keep anybody
// from asking what is allowed.
func TestReviewsAreNotAskedAbout(t *testing.T) {
	t.Parallel()
	h := newHookServer(t)
	config := start(t, hookParts(admit.ValidatingWebhooks{}, authorization.SelfSubjectAccessReviews{}))
	all := h.hook("deny", "/deny", admissionv1.Fail)
	all.ObjectSelector = nil
	all.Rules[0].Rule = admissionv1.Rule{APIGroups: []string{"", "authorization.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"*"}}
	registerHooks(t, config, all)
	client := dynamicClient(t, config)
	eventually(t, "the webhook denies", func() bool {
		_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "tried", "deny"))
		return err != nil && strings.Contains(err.Error(), "no thanks")
	})
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps"},
	}}
	reviews := typedClient(t, config).AuthorizationV1().SelfSubjectAccessReviews()
	got, err := reviews.Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || !got.Status.Allowed {
		t.Errorf("a review ends in %v, %v, want that it is allowed", got, err)
	}
	if len(h.seen("")) > 0 {
		t.Error("the webhook was asked about a review")
	}
}

// TestDenyKeepsOthers: a list denies what is in it and nothing else.
func TestDenyKeepsOthers(t *testing.T) {
	t.Parallel()
	h := newHookServer(t)
	loopback := netip.MustParseAddr("127.0.0.1")
	deny := slices.DeleteFunc(admit.PrivateNetworks(), func(p netip.Prefix) bool { return p.Contains(loopback) })
	config := start(t, hookParts(admit.ValidatingWebhooks{Deny: deny}))
	registerHooks(t, config, h.hook("deny", "/deny", admissionv1.Fail))
	client := dynamicClient(t, config)
	eventually(t, "the webhook denies", func() bool {
		_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "tried", "deny"))
		return err != nil && strings.Contains(err.Error(), "no thanks")
	})
}

// TestMatchConditions: what conditions do not match is not asked about.
func TestMatchConditions(t *testing.T) {
	t.Parallel()
	h := newHookServer(t)
	config := start(t, hookParts(admit.ValidatingWebhooks{}))
	chosen, broken := h.hook("chosen", "/deny", admissionv1.Fail), h.hook("broken", "/allow", admissionv1.Fail)
	chosen.MatchConditions = []admissionv1.MatchCondition{
		{Name: "not-dry", Expression: "request.dryRun == true"}, {Name: "name", Expression: "object.metadata.name.startsWith('chosen')"},
	}
	broken.MatchConditions = []admissionv1.MatchCondition{{Name: "absent", Expression: "object.data.absent == 'x'"}}
	ignored := *broken.DeepCopy()
	ignored.Name, ignored.FailurePolicy = "ignored.example.com", ptr.To(admissionv1.Ignore)
	ignored.ObjectSelector.MatchLabels["hook"] = "ignored"
	registerHooks(t, config, chosen, broken, ignored)
	client := dynamicClient(t, config)
	eventually(t, "what matches is denied", func() bool {
		_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "chosen-one", "chosen"))
		return err != nil && strings.Contains(err.Error(), "no thanks")
	})
	if _, err := tryObject(t, client, configMaps(), labelled(configMaps(), "other", "chosen")); err != nil || len(h.seen("other")) > 0 {
		t.Errorf("what does not match is not asked about: %v, %v", err, h.seen("other"))
	}
	if _, err := tryObject(t, client, configMaps(), labelled(configMaps(), "other", "broken")); !apierrors.IsForbidden(err) {
		t.Errorf("a condition that cannot be evaluated fails as the failure policy says: %v", err)
	}
	if _, err := tryObject(t, client, configMaps(), labelled(configMaps(), "other", "ignored")); err != nil {
		t.Errorf("which may be to ignore it: %v", err)
	}
}
