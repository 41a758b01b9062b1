package kube

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/util/retry"
	budgethelper "k8s.io/component-helpers/apps/poddisruptionbudget"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// disruptionBudgets reads the PodDisruptionBudgets of a plane through its API, since
// another part serves them, or none.
type disruptionBudgets struct {
	client atomic.Pointer[policyclient.PolicyV1Interface]
}

// start is called when the plane is up.
func (b *disruptionBudgets) start(_ context.Context, p *controlplane.Plane) error {
	b.client.Store(new(p.Client().PolicyV1()))
	return nil
}

// in returns the client of a namespace.
func (b *disruptionBudgets) in(namespace string) (policyclient.PodDisruptionBudgetInterface, error) {
	client := b.client.Load()
	if client == nil {
		return nil, apierrors.NewServiceUnavailable("pod disruption budgets: the server is starting")
	}
	return (*client).PodDisruptionBudgets(namespace), nil
}

// of returns the budgets that select the pod; none if budgets are not served.
func (b *disruptionBudgets) of(ctx context.Context, pod *corev1.Pod) ([]policyv1.PodDisruptionBudget, error) {
	client, err := b.in(pod.Namespace)
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []policyv1.PodDisruptionBudget
	for _, budget := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, budget)
		}
	}
	return found, nil
}

// take counts one disruption in the status of the budget, or says why the
// budget does not allow it. It changes its argument.
func (b *disruptionBudgets) take(ctx context.Context, budget *policyv1.PodDisruptionBudget, pod string, dryRun bool) error {
	client, err := b.in(budget.Namespace)
	if err != nil {
		return err
	}
	old := false
	return retry.OnError(patience(), apierrors.IsConflict, func() error {
		if old { // another client was faster
			if budget, err = client.Get(ctx, budget.Name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		old = true
		if err := mayDisrupt(budget); err != nil || dryRun {
			return err
		}
		disrupt(budget, pod)
		_, err := client.UpdateStatus(ctx, budget, metav1.UpdateOptions{})
		return err
	})
}

// mostDisrupted is how many evictions may wait for the controller of budgets to
// see them.
const mostDisrupted = 2000

// mayDisrupt says why the budget allows no disruption.
func mayDisrupt(b *policyv1.PodDisruptionBudget) error {
	switch status := b.Status; {
	case status.ObservedGeneration < b.Generation:
		return processing(b.Name)
	case len(status.DisruptedPods) > mostDisrupted:
		return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, b.Name,
			errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case status.DisruptionsAllowed <= 0:
		return tooMany(0, exhausted(b))
	}
	return nil
}

// exhausted says why a budget allows nothing now.
func exhausted(b *policyv1.PodDisruptionBudget) string {
	because := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := because != nil && because.Status == metav1.ConditionFalse && because.Message != ""
	switch {
	case explained && because.Reason == policyv1.SyncFailedReason: // then the numbers cannot be trusted
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s",
			b.Name, because.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s",
			b.Name, because.Reason, because.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

// processing is the answer when the budget's status is older than its spec.
func processing(budget string) error {
	return tooMany(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

func tooMany(retryAfterSeconds int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfterSeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

// disrupt counts one disruption. The status names the pod until the controller
// of budgets has seen it end.
func disrupt(b *policyv1.PodDisruptionBudget, pod string) {
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptionsAllowed == 0 {
		budgethelper.UpdateDisruptionAllowedCondition(b)
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod] = metav1.Now()
}

// sparesUnready tells whether the budget allows to evict any pod that is not ready.
func sparesUnready(b *policyv1.PodDisruptionBudget) bool {
	return value(b.Spec.UnhealthyPodEvictionPolicy) == policyv1.AlwaysAllow ||
		b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

// patience is the backoff after conflicts, some 10 s in all.
func patience() wait.Backoff {
	return wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.3, Jitter: 0.5, Steps: 19}
}
