package admissionregistration

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// PolicyStatus is the part that checks the expressions of
// ValidatingAdmissionPolicies against the schemas of the kinds they match, and
// writes what is wrong into status.typeChecking. It never changes what a policy
// does, and checks each generation of a policy once, as kube-controller-manager
// does. It needs [ValidatingAdmissionPolicies].
type PolicyStatus struct{}

// PartName implements the name errors use.
func (PolicyStatus) PartName() string { return "admissionregistration.PolicyStatus" }

// Install declares the work of the part.
func (PolicyStatus) Install(p *controlplane.Plan) error {
	p.Need("admissionregistration.ValidatingAdmissionPolicies{}",
		admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"))
	p.Work(controlplane.Work{Name: "check-policy-types", Elected: true, Run: func(ctx context.Context, plane *controlplane.Plane) error {
		return newTypes(plane.Client()).run(ctx, policiesOf(plane))
	}})
	// The informer outlives an election that is lost.
	p.Work(controlplane.Work{Name: "read policies to check", Run: func(ctx context.Context, plane *controlplane.Plane) error {
		policiesOf(plane)
		plane.Informers().StartWithContext(ctx)
		return nil
	}})
	return nil
}

// policiesOf is the informer that admission by policies uses too.
func policiesOf(p *controlplane.Plane) cache.SharedIndexInformer {
	return p.Informers().Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
}

// The pause before a failed write of a status is tried again, at first and at most.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Minute
)

// types checks the types in the expressions of policies.
type types struct {
	client  kubernetes.Interface
	checker *validating.TypeChecker
	queue   *retry.Queue[string]
}

func newTypes(client kubernetes.Interface) *types {
	return &types{
		client: client,
		checker: &validating.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client.Discovery()},
			RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		},
		queue: retry.NewQueue[string](firstRetry, lastRetry),
	}
}

// run checks policies until the context ends.
func (t *types) run(ctx context.Context, policies cache.SharedIndexInformer) error {
	defer t.queue.ShutDown()
	look := func(obj any) {
		if p, ok := obj.(*admissionv1.ValidatingAdmissionPolicy); ok && unchecked(p) {
			t.queue.Add(p.Name)
		}
	}
	handle, err := policies.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) },
	})
	if err != nil {
		return err // the plane stops
	}
	defer policies.RemoveEventHandler(handle) //nolint:errcheck // the handler is registered
	t.queue.Run(ctx, 1, func(ctx context.Context, name string) error {
		found, _, _ := policies.GetStore().GetByKey(name) // the error is always nil
		if p, ok := found.(*admissionv1.ValidatingAdmissionPolicy); ok && unchecked(p) {
			return retry.UnlessGone(t.check(ctx, p))
		}
		return nil
	}, func(ctx context.Context, name string, err error) {
		klog.FromContext(ctx).Error(err, "Cannot write the status of a policy yet; will retry", "validatingAdmissionPolicy", name)
	})
	return nil
}

func unchecked(p *admissionv1.ValidatingAdmissionPolicy) bool {
	return p.Status.ObservedGeneration < p.Generation
}

// check writes what is wrong with the types into the status of the policy.
func (t *types) check(ctx context.Context, p *admissionv1.ValidatingAdmissionPolicy) error {
	checked := admissionapply.TypeChecking()
	for _, w := range t.checker.Check(p) {
		checked.WithExpressionWarnings(admissionapply.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	status := admissionapply.ValidatingAdmissionPolicyStatus().WithObservedGeneration(p.Generation).WithTypeChecking(checked)
	_, err := t.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		admissionapply.ValidatingAdmissionPolicy(p.Name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: "validatingadmissionpolicy-status", Force: true})
	return err
}
