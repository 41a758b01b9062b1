package admit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
)

// ValidatingWebhooks is the part that calls validating webhooks: it follows the
// ValidatingWebhookConfigurations of the plane, as kube-apiserver does
// (https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/).
// It needs the parts admissionregistration.ValidatingWebhookConfigurations and
// core.Namespaces. The Services that webhooks name are found by the parts of package
// services, or by a handler in the process (see [controlplane.Plan.ServeHost]).
//
// Admission plugins run in the order of the parts: put it after everything
// else that validates but quota. The plane's own writes are exempt until it is
// ready, so that a webhook that is down cannot keep it from starting.
type ValidatingWebhooks struct {
	// ConfigFile is the path of a kubeconfig whose users are the credentials for
	// webhooks, named after their hosts: "name.namespace.svc", "*.example.com"
	// or "*". Empty: webhooks are called anonymously.
	ConfigFile string
	// Deny are networks that webhooks may not be in. It is checked when a
	// webhook is connected to, by the address its name resolves to; the failure
	// policy says what follows. [LinkLocal] is always in it. See [PrivateNetworks]
	// for more. With a list, webhooks are reached without the proxy that the
	// environment of the process may name. It is not for the addresses of
	// services.Addresses.
	Deny []netip.Prefix
	// Allow are networks in denied ones that webhooks may be in. Empty: none.
	Allow []netip.Prefix
}

// MutatingWebhooks is the part that calls mutating webhooks: it follows the
// MutatingWebhookConfigurations of the plane, as kube-apiserver does. It needs
// the parts admissionregistration.MutatingWebhookConfigurations and
// core.Namespaces. Put it after everything else that mutates. The plane's own
// writes are exempt until it is ready. Services are found as for
// [ValidatingWebhooks].
type MutatingWebhooks struct {
	// ConfigFile is the path of a kubeconfig whose users are the credentials for
	// webhooks, named after their hosts: "name.namespace.svc", "*.example.com"
	// or "*". Empty: webhooks are called anonymously.
	ConfigFile string
	// Deny are networks that webhooks may not be in. It is checked when a
	// webhook is connected to, by the address its name resolves to; the failure
	// policy says what follows. [LinkLocal] is always in it. See [PrivateNetworks]
	// for more. With a list, webhooks are reached without the proxy that the
	// environment of the process may name. It is not for the addresses of
	// services.Addresses.
	Deny []netip.Prefix
	// Allow are networks in denied ones that webhooks may be in. Empty: none.
	Allow []netip.Prefix
}

// PartName implements the name errors use.
func (ValidatingWebhooks) PartName() string { return "admit.ValidatingWebhooks" }

// PartName implements the name errors use.
func (MutatingWebhooks) PartName() string { return "admit.MutatingWebhooks" }

// Install declares the admission plugin ValidatingAdmissionWebhook.
func (w ValidatingWebhooks) Install(p *controlplane.Plan) error {
	h := &hooks{Handler: handled(), kubeconfig: w.ConfigFile, dialer: dialing.New(w.Deny, w.Allow, p)}
	if err := h.dialer.Check(); err != nil {
		return err
	}
	h.plugin = sync.OnceValues(func() (*generic.Webhook, error) {
		plugin, err := validatingwebhook.NewValidatingAdmissionWebhook(nil)
		if err != nil {
			return nil, err
		}
		return plugin.Webhook, h.initialize(plugin.Webhook)
	})
	h.watched = func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer()
	}
	p.Admit(validatingwebhook.PluginName, validatingHooks{h})
	h.declare(p, "ValidatingWebhookConfiguration", "validating webhooks")
	return nil
}

// Install declares the admission plugin MutatingAdmissionWebhook.
func (w MutatingWebhooks) Install(p *controlplane.Plan) error {
	h := &hooks{Handler: handled(), kubeconfig: w.ConfigFile, dialer: dialing.New(w.Deny, w.Allow, p)}
	if err := h.dialer.Check(); err != nil {
		return err
	}
	h.plugin = sync.OnceValues(func() (*generic.Webhook, error) {
		plugin, err := mutatingwebhook.NewMutatingWebhook(nil)
		if err != nil {
			return nil, err
		}
		return plugin.Webhook, h.initialize(plugin.Webhook)
	})
	h.watched = func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Admissionregistration().V1().MutatingWebhookConfigurations().Informer()
	}
	p.Admit(mutatingwebhook.PluginName, mutatingHooks{h})
	h.declare(p, "MutatingWebhookConfiguration", "mutating webhooks")
	return nil
}

// validatingHooks and mutatingHooks are two types because the chain tells by
// interface which of the two a plugin does.
type validatingHooks struct{ *hooks }

func (v validatingHooks) Validate(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	return v.dispatch(ctx, a, o)
}

type mutatingHooks struct{ *hooks }

func (m mutatingHooks) Admit(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	return m.dispatch(ctx, a, o)
}

var (
	_ admission.ValidationInterface                = validatingHooks{}
	_ admission.MutationInterface                  = mutatingHooks{}
	_ admission.InitializationValidator            = &hooks{}
	_ initializer.WantsExternalKubeClientSet       = &hooks{}
	_ initializer.WantsExternalKubeInformerFactory = &hooks{}
	_ initializer.WantsAuthorizer                  = &hooks{}
)

// hooks is what both kinds of webhooks share. Upstream's plugin is made when
// there is a webhook: its CEL environments cost more than most of a plane without
// webhooks.
type hooks struct {
	*admission.Handler
	kubeconfig string
	client     kubernetes.Interface
	informers  informers.SharedInformerFactory
	authorizer authorizer.Authorizer
	dialer     dialing.Dialer
	startup    startup

	credentials    webhook.AuthenticationInfoResolver
	watched        func(informers.SharedInformerFactory) cache.SharedIndexInformer
	configurations cache.SharedIndexInformer
	used           atomic.Bool // whether there was a configuration
	plugin         func() (*generic.Webhook, error)
}

// handled returns the operations that webhooks may be called for.
func handled() *admission.Handler {
	return admission.NewHandler(admission.Connect, admission.Create, admission.Delete, admission.Update)
}

// declare declares what the plugin needs, and ends its connections with the
// plane.
func (h *hooks) declare(p *controlplane.Plan, kind, name string) {
	p.Need("core.Namespaces{}", corev1.SchemeGroupVersion.WithKind("Namespace"))
	p.Need("admissionregistration."+kind+"s{}", admissionv1.SchemeGroupVersion.WithKind(kind))
	p.Work(controlplane.Work{
		Name: "ask " + name,
		Start: func(_ context.Context, plane *controlplane.Plane) error {
			h.startup.begin(plane)
			return nil
		},
		Stop: h.dialer.CloseAll,
	})
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (h *hooks) SetExternalKubeClientSet(c kubernetes.Interface) { h.client = c }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
// Only a plane asks for the informers: Plan.Need reports missing kinds, and knows
// the part to add.
func (h *hooks) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) { h.informers = f }

// SetAuthorizer implements initializer.WantsAuthorizer.
func (h *hooks) SetAuthorizer(a authorizer.Authorizer) { h.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator. It asks for
// the informers, so that the plane waits for them.
func (h *hooks) ValidateInitialization() error {
	var err error
	if h.credentials, err = webhook.NewDefaultAuthenticationInfoResolver(h.kubeconfig); err != nil {
		return fmt.Errorf("credentials for webhooks: %w", err)
	}
	h.informers.Core().V1().Namespaces().Informer()
	h.configurations = h.watched(h.informers)
	return nil
}

// initialize prepares a new plugin of upstream.
func (h *hooks) initialize(w *generic.Webhook) error {
	if h.configurations.IsStopped() {
		return errors.New("the plane is stopping") // a stopped informer takes no handler
	}
	w.SetAuthenticationInfoResolverWrapper(func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return h.dialer.Resolver(h.credentials)
	})
	w.SetServiceResolver(h.dialer)
	w.SetExternalKubeClientSet(h.client)
	w.SetUnconditionalAuthorizer(h.authorizer)
	w.SetExternalKubeInformerFactory(h.informers)
	return w.ValidateInitialization()
}

func (h *hooks) dispatch(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	if h.startup.passes(a) || controlplane.IsReview(a.GetResource().GroupResource()) {
		return nil
	}
	if !h.used.Load() {
		if h.configurations.HasSynced() && len(h.configurations.GetStore().ListKeys()) == 0 {
			return nil
		}
		h.used.Store(true)
	}
	plugin, err := h.plugin()
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("webhooks: %w", err))
	}
	return plugin.Dispatch(ctx, a, o)
}
