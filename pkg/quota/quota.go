package quota

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	apiquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// ResourceQuotas is the part that enforces ResourceQuotas, which it serves too.
//
// Admission reserves what an object uses in the status of the quota, by
// optimistic concurrency, before the object is written. The number of objects, and
// what they take in the storage, come from the plane's feed.
type ResourceQuotas struct {
	settle time.Duration // empty: settle
}

// evaluators is how many namespaces are evaluated at the same time.
const evaluators = 4

// Install adds the admission plugin ResourceQuota and the work that counts.
func (r ResourceQuotas) Install(p *controlplane.Plan) error {
	published, err := resourcequota.NewResourceQuota(nil, evaluators)
	if err != nil {
		return fmt.Errorf("admission plugin %s: %w", resourcequota.PluginName, err)
	}
	admits := &plugin{QuotaAdmission: published}
	weighs := &scale{plugin: admits}
	p.Feed()
	p.CountAggregated()
	p.AdmitAggregated(resourcequota.PluginName, admits)
	p.Admit(resourcequota.PluginName, admits)
	p.Guard("quota of bytes", weighs.guard)
	p.Work(controlplane.Work{Name: "stored bytes", Start: func(ctx context.Context, plane *controlplane.Plane) error {
		if err := plane.Feed().Await(ctx); err != nil {
			return err
		}
		weighs.feed.Store(plane.Feed())
		return nil
	}})
	p.Work(controlplane.Work{Name: "quota", Elected: true, Run: func(ctx context.Context, plane *controlplane.Plane) error {
		c := &counter{
			feed: plane.Feed(), core: plane.Client().CoreV1(),
			queue:  retry.NewQueue[key](firstRetry, lastRetry),
			quotas: map[string]map[string]*state{}, settle: cmp.Or(r.settle, settleTime), elsewhere: plane.AggregatedCounter(),
		}
		if c.elsewhere != nil {
			c.elsewhere.Subscribe(c.changedElsewhere)
		}
		weighs.counter.Store(c)
		defer weighs.counter.Store(nil)
		return c.run(ctx, plane.Informers().Core().V1().ResourceQuotas().Informer())
	}})
	return p.Include(core.ResourceQuotas{})
}

// plugin is the published admission plugin, which gets its evaluators once it
// knows when to stop.
type plugin struct {
	*resourcequota.QuotaAdmission

	client kubernetes.Interface
	quotas corelisters.ResourceQuotaLister
}

// When a quota changes during a decision, or changed shortly before a refusal, the decision is
// tried again, tries times in all with pauses that double. The plugin itself gives up after a
// few tries without pauses, and the client would get its conflict. The pauses let its informer
// see the last write.
const (
	tries      = 12
	firstPause = 5 * time.Millisecond
)

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	backoff := wait.Backoff{Steps: tries, Duration: firstPause, Factor: 2, Jitter: 0.5}
	for current := false; ; { // the informer was, before the decision
		err := p.QuotaAdmission.Validate(ctx, a, o)
		refused := apierrors.IsForbidden(err) && !current
		if !refused && !apierrors.IsConflict(err) || backoff.Steps <= 1 {
			return err
		}
		if current = refused && !p.late(ctx, a.GetNamespace()); current {
			continue
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return err
		}
	}
}

// late tells whether the informer has not seen a quota of the namespace as it is: a client that
// reads that there is room again must not be refused.
func (p *plugin) late(ctx context.Context, namespace string) bool {
	now, err := p.client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	return err == nil && slices.ContainsFunc(now.Items, func(q corev1.ResourceQuota) bool {
		seen, err := p.quotas.ResourceQuotas(namespace).Get(q.Name)
		return err != nil || seen.ResourceVersion != q.ResourceVersion
	})
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *plugin) SetExternalKubeClientSet(c kubernetes.Interface) {
	p.QuotaAdmission.SetExternalKubeClientSet(c)
	p.client = c
}

// SetDrainedNotification implements initializer.WantsDrainedNotification.
func (p *plugin) SetDrainedNotification(stop <-chan struct{}) {
	p.QuotaAdmission.SetDrainedNotification(stop)
	ignored := map[schema.GroupResource]struct{}{
		corev1.Resource("events"):                                              {},
		{Group: "events.k8s.io", Resource: "events"}:                           {},
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: {},
	}
	p.SetQuotaConfiguration(generic.NewConfiguration(known(), ignored))
}

// known are the evaluators of resources with a name older than count/RESOURCE.
// For all others the plugin makes one that counts.
func known() []apiquota.Evaluator {
	var all []apiquota.Evaluator
	for _, name := range []corev1.ResourceName{
		corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas,
		corev1.ResourceReplicationControllers, corev1.ResourcePods,
	} {
		all = append(all, generic.NewObjectCountEvaluator(corev1.Resource(string(name)), nil, name))
	}
	return append(all, services(), claims(), storedBytes())
}
