package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// ValidatingPolicies is the part that enforces the ValidatingAdmissionPolicies of
// the plane where their bindings say so, as kube-apiserver does
// (https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/).
// It needs the parts admissionregistration.ValidatingAdmissionPolicies,
// admissionregistration.ValidatingAdmissionPolicyBindings and core.Namespaces.
// Parameters may be of any kind that is served, custom resources too. The plane's
// own writes are exempt until it is ready, so that a policy cannot keep it from starting.
//
// A change of a policy holds after at most a second.
type ValidatingPolicies struct{}

// MutatingPolicies is the part that enforces the MutatingAdmissionPolicies of the
// plane where their bindings say so, as kube-apiserver does
// (https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/).
// It needs the parts admissionregistration.MutatingAdmissionPolicies,
// admissionregistration.MutatingAdmissionPolicyBindings and core.Namespaces. Put
// it before MutatingWebhooks and after everything else that mutates. The plane's
// own writes are exempt until it is ready.
//
// A change of a policy holds after at most a second. A new kind, such as that of
// a CRD, can be mutated after at most five; until then a matching policy fails.
type MutatingPolicies struct{}

// PartName implements the name errors use.
func (ValidatingPolicies) PartName() string { return "admit.ValidatingPolicies" }

// PartName implements the name errors use.
func (MutatingPolicies) PartName() string { return "admit.MutatingPolicies" }

// Install declares the admission plugin ValidatingAdmissionPolicy.
func (ValidatingPolicies) Install(p *controlplane.Plan) error {
	plugin, err := validatingpolicy.NewPlugin(nil)
	if err != nil {
		return err
	}
	rules := newPolicies(plugin.Plugin, func(f informers.SharedInformerFactory) []cache.SharedIndexInformer {
		v1 := f.Admissionregistration().V1()
		return []cache.SharedIndexInformer{
			v1.ValidatingAdmissionPolicies().Informer(), v1.ValidatingAdmissionPolicyBindings().Informer(),
		}
	})
	p.Admit(validatingpolicy.PluginName, validatingPolicies{rules})
	rules.declare(p, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicies")
	return nil
}

// Install declares the admission plugin MutatingAdmissionPolicy.
func (MutatingPolicies) Install(p *controlplane.Plan) error {
	plugin, err := mutatingpolicy.NewPlugin(nil)
	if err != nil {
		return err
	}
	plugin.SetEnabled(true) // the part is the switch
	rules := newPolicies(plugin.Plugin, func(f informers.SharedInformerFactory) []cache.SharedIndexInformer {
		v1 := f.Admissionregistration().V1()
		return []cache.SharedIndexInformer{
			v1.MutatingAdmissionPolicies().Informer(), v1.MutatingAdmissionPolicyBindings().Informer(),
		}
	})
	p.Admit(mutatingpolicy.PluginName, mutatingPolicies{rules})
	rules.declare(p, "MutatingAdmissionPolicy", "MutatingAdmissionPolicies")
	return nil
}

type validatingPolicies struct {
	*policies[validatingpolicy.PolicyHook]
}

func (v validatingPolicies) Validate(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	return v.dispatch(ctx, a, o)
}

type mutatingPolicies struct {
	*policies[mutatingpolicy.PolicyHook]
}

func (m mutatingPolicies) Admit(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	return m.dispatch(ctx, a, o)
}

var (
	_ admission.ValidationInterface                = validatingPolicies{}
	_ admission.MutationInterface                  = mutatingPolicies{}
	_ initializer.WantsExternalKubeInformerFactory = validatingPolicies{}
	_ initializer.WantsRESTMapper                  = validatingPolicies{}
	_ initializer.WantsDynamicClient               = validatingPolicies{}
)

// policies is a policy plugin that starts when its informers are synced. On its
// own the plugin polls for that once it is initialised, in goroutines that a
// plane that is built but never started would leak.
type policies[H any] struct {
	*generic.Plugin[H]
	wanted    func(informers.SharedInformerFactory) []cache.SharedIndexInformer
	informers informers.SharedInformerFactory
	synced    []cache.InformerSynced
	started   chan struct{}
	start     func() error
	startup   startup
}

func newPolicies[H any](
	plugin *generic.Plugin[H], wanted func(informers.SharedInformerFactory) []cache.SharedIndexInformer,
) *policies[H] {
	p := &policies[H]{Plugin: plugin, wanted: wanted, started: make(chan struct{})}
	p.start = sync.OnceValue(func() error {
		defer close(p.started)
		return p.Plugin.ValidateInitialization()
	})
	return p
}

// declare declares what the plugin needs, and starts it with the plane.
func (p *policies[H]) declare(plan *controlplane.Plan, kind, plural string) {
	plan.Need("core.Namespaces{}", corev1.SchemeGroupVersion.WithKind("Namespace"))
	plan.Need("admissionregistration."+plural+"{}", admissionv1.SchemeGroupVersion.WithKind(kind))
	plan.Need("admissionregistration."+kind+"Bindings{}", admissionv1.SchemeGroupVersion.WithKind(kind+"Binding"))
	plan.Work(controlplane.Work{Name: "start " + plural, Run: func(_ context.Context, plane *controlplane.Plane) error {
		p.startup.begin(plane)
		return p.start()
	}})
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *policies[H]) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.informers = f
	p.Plugin.SetExternalKubeInformerFactory(single{f})
}

// SetRESTMapper implements initializer.WantsRESTMapper.
func (p *policies[H]) SetRESTMapper(m meta.RESTMapper) { p.Plugin.SetRESTMapper(current{m}) }

// ValidateInitialization asks for the informers, so that the plane waits for them.
func (p *policies[H]) ValidateInitialization() error {
	for _, i := range append(p.wanted(p.informers), p.informers.Core().V1().Namespaces().Informer()) {
		p.synced = append(p.synced, i.HasSynced)
	}
	return nil
}

func (p *policies[H]) dispatch(ctx context.Context, a Attributes, o admission.ObjectInterfaces) error {
	if p.startup.passes(a) || exempt(a.GetResource().GroupResource()) {
		return nil
	}
	// It also makes sure that the plugin reads what its start has set.
	if err := p.await(ctx); err != nil {
		return admission.NewForbidden(a, err)
	}
	return p.Dispatch(ctx, a, o)
}

// readyTimeout is how long a request waits for the plugin, as upstream's do.
const readyTimeout = 10 * time.Second

// await starts the plugin as soon as the informers of the plane are synced.
func (p *policies[H]) await(ctx context.Context) error {
	select {
	case <-p.started:
		return p.start()
	default:
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, readyTimeout, true, func(context.Context) (bool, error) {
		for _, synced := range p.synced {
			if !synced() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("not yet ready to handle request: %w", err)
	}
	return p.start()
}

// exempt tells whether policies are not asked about a resource: policies, since
// one that denied changes of policies would stay for ever, and reviews. As in
// kube-apiserver:
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/kubeapiserver/admission/exclusion/resources.go
func exempt(r schema.GroupResource) bool {
	return controlplane.IsReview(r) || r.Group == admissionv1.GroupName && slices.Contains([]string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	}, r.Resource)
}

// single is a factory whose informers for parameters are not shared. A policy
// stops its informers when it is deleted, and a shared one would stay stopped for
// the next policy: its parameters would never change again.
type single struct {
	informers.SharedInformerFactory
}

func (single) ForResource(schema.GroupVersionResource) (informers.GenericInformer, error) {
	return nil, errors.New("informers for parameters are not shared")
}

// current is a mapper that asks the server again for kinds it does not know:
// they may be those of a new CRD.
type current struct{ meta.RESTMapper }

func (c current) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := c.RESTMapper.RESTMapping(kind, versions...)
	if !meta.IsNoMatchError(err) {
		return mapping, err
	}
	meta.MaybeResetRESTMapper(c.RESTMapper)
	return c.RESTMapper.RESTMapping(kind, versions...)
}
