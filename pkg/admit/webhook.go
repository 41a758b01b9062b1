package admit

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
)

// Resolver finds the address of the Service that a webhook names. One that
// serves aggregator.APIServices serves here too.
type Resolver interface {
	// ResolveEndpoint returns the URL of a Service's port, or why there is none.
	ResolveEndpoint(namespace, name string, port int32) (*url.URL, error)
}

// ValidatingWebhooks is the part that asks validating webhooks: it obeys the
// ValidatingWebhookConfigurations of the plane, as kube-apiserver does
// (https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/).
// It needs the parts admissionregistration.ValidatingWebhookConfigurations and
// core.Namespaces.
//
// Admission plugins run in the order of the parts: put it after everything
// else that validates but quota. What the plane itself writes until it is
// ready is not asked about, so that a webhook that is down cannot keep it from
// starting.
type ValidatingWebhooks struct {
	// Resolver finds the Services that webhooks name. Nil: none is found, and
	// webhooks must have a URL, unless a handler in the process answers for them:
	// see [controlplane.Plan.Answer].
	Resolver Resolver
	// Kubeconfig is the path of a kubeconfig whose users are the credentials for
	// webhooks, named after their hosts: "name.namespace.svc", "*.example.com"
	// or "*". Empty: webhooks are called anonymously.
	Kubeconfig string
	// Deny are networks that webhooks may not be in. It is checked when a
	// webhook is connected to, by the address its name resolves to; the failure
	// policy says what follows. Empty: webhooks may be anywhere. See
	// [PrivateNetworks]. With it, webhooks are reached without the proxy that the
	// environment of the process may name.
	Deny []netip.Prefix
}

// MutatingWebhooks is the part that asks mutating webhooks: it obeys the
// MutatingWebhookConfigurations of the plane, as kube-apiserver does. It needs
// the parts admissionregistration.MutatingWebhookConfigurations and
// core.Namespaces. Put it after everything else that mutates. What the plane
// itself writes until it is ready is not asked about.
type MutatingWebhooks struct {
	// Resolver finds the Services that webhooks name. Nil: none is found, and
	// webhooks must have a URL, unless a handler in the process answers for them:
	// see [controlplane.Plan.Answer].
	Resolver Resolver
	// Kubeconfig is the path of a kubeconfig whose users are the credentials for
	// webhooks, named after their hosts: "name.namespace.svc", "*.example.com"
	// or "*". Empty: webhooks are called anonymously.
	Kubeconfig string
	// Deny are networks that webhooks may not be in. It is checked when a
	// webhook is connected to, by the address its name resolves to; the failure
	// policy says what follows. Empty: webhooks may be anywhere. See
	// [PrivateNetworks]. With it, webhooks are reached without the proxy that the
	// environment of the process may name.
	Deny []netip.Prefix
}

// PartName implements the name errors use.
func (ValidatingWebhooks) PartName() string { return "admit.ValidatingWebhooks" }

// PartName implements the name errors use.
func (MutatingWebhooks) PartName() string { return "admit.MutatingWebhooks" }

// Install declares the admission plugin ValidatingAdmissionWebhook.
func (w ValidatingWebhooks) Install(p *controlplane.Plan) error {
	plugin, err := validatingwebhook.NewValidatingAdmissionWebhook(nil)
	if err != nil {
		return err
	}
	h := &hooks{Webhook: plugin.Webhook, resolver: w.Resolver, kubeconfig: w.Kubeconfig, dialer: dialing.New(w.Deny)}
	if err := h.dialer.Check(); err != nil {
		return err
	}
	p.Admit(validatingwebhook.PluginName, validatingHooks{h, plugin})
	h.declare(p, "ValidatingWebhookConfiguration", "validating webhooks")
	return nil
}

// Install declares the admission plugin MutatingAdmissionWebhook.
func (w MutatingWebhooks) Install(p *controlplane.Plan) error {
	plugin, err := mutatingwebhook.NewMutatingWebhook(nil)
	if err != nil {
		return err
	}
	h := &hooks{Webhook: plugin.Webhook, resolver: w.Resolver, kubeconfig: w.Kubeconfig, dialer: dialing.New(w.Deny)}
	if err := h.dialer.Check(); err != nil {
		return err
	}
	p.Admit(mutatingwebhook.PluginName, mutatingHooks{h, plugin})
	h.declare(p, "MutatingWebhookConfiguration", "mutating webhooks")
	return nil
}

// validatingHooks and mutatingHooks are two types because the chain asks by
// interface which of the two a plugin does.
type validatingHooks struct {
	*hooks
	plugin *validatingwebhook.Plugin
}

func (v validatingHooks) Validate(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	if v.startup.passes(a) {
		return nil
	}
	return v.plugin.Validate(ctx, a, o)
}

type mutatingHooks struct {
	*hooks
	plugin *mutatingwebhook.Plugin
}

func (m mutatingHooks) Admit(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	if m.startup.passes(a) {
		return nil
	}
	return m.plugin.Admit(ctx, a, o)
}

var (
	_ admission.ValidationInterface                = validatingHooks{}
	_ admission.MutationInterface                  = mutatingHooks{}
	_ admission.InitializationValidator            = &hooks{}
	_ initializer.WantsExternalKubeInformerFactory = &hooks{}
	_ initializer.WantsAuthorizer                  = &hooks{}
)

// hooks is what both kinds of webhooks have in common.
type hooks struct {
	*generic.Webhook
	resolver   Resolver
	kubeconfig string
	informers  informers.SharedInformerFactory
	dialer     dialing.Dialer
	answer     func(host string) http.RoundTripper
	startup    startup
}

// declare says what the plugin needs, and ends its connections with the plane.
func (h *hooks) declare(p *controlplane.Plan, kind, name string) {
	p.Need("core.Namespaces{}", corev1.SchemeGroupVersion.WithKind("Namespace"))
	p.Need("admissionregistration."+kind+"s{}", admissionv1.SchemeGroupVersion.WithKind(kind))
	h.answer = p.Answering
	h.startup.declare(p, name)
	p.Background("connections to "+name, func(ctx context.Context, _ *controlplane.Plane) error {
		<-ctx.Done() // requests are drained by then
		h.dialer.CloseAll()
		return nil
	})
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
// The plugin gets the informers of a plane only: that kinds are missing is said
// by Plan.Need, which knows the part to add.
func (h *hooks) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) { h.informers = f }

// ValidateInitialization implements admission.InitializationValidator.
func (h *hooks) ValidateInitialization() error {
	credentials, err := webhook.NewDefaultAuthenticationInfoResolver(h.kubeconfig)
	if err != nil {
		return fmt.Errorf("credentials for webhooks: %w", err)
	}
	h.SetAuthenticationInfoResolverWrapper(func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return h.dialer.Resolver(credentials, h.answer)
	})
	h.SetServiceResolver(h.serviceResolver())
	h.Webhook.SetExternalKubeInformerFactory(h.informers)
	return h.Webhook.ValidateInitialization()
}

func (h *hooks) serviceResolver() Resolver {
	if h.resolver != nil {
		return h.resolver
	}
	return noServices{}
}

// noServices is the resolver of a plane whose webhooks have URLs.
type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %s/%s: no resolver was given for webhooks: give the webhook a url", namespace, name)
}
