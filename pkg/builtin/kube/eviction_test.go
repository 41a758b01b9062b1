package kube_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
)

// podIn makes a pod of an app, with a finalizer so that what is said in it
// before it is deleted can be read.
func podIn(t *testing.T, client kubernetes.Interface, namespace, name string, status corev1.PodStatus) {
	t.Helper()
	p := simplePod(name)
	p.Labels, p.Finalizers = map[string]string{"app": "a"}, []string{"example.com/watch"}
	p, err := client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status = status
	if _, err = client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// ready is the status of a pod that is ready in a phase.
func ready(phase corev1.PodPhase) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: phase, QOSClass: corev1.PodQOSBestEffort,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
}

func eviction(name string, how *metav1.DeleteOptions) *policyv1.Eviction {
	return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: how}
}

// deleted tells whether a pod is deleted, and what it says of why.
func deleted(t *testing.T, client kubernetes.Interface, namespace, name string) (bool, string) {
	t.Helper()
	p, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return p.DeletionTimestamp != nil, c.Reason + ": " + c.Message
		}
	}
	return p.DeletionTimestamp != nil, ""
}

// evict is without any budget.
func evict(t *testing.T, config *rest.Config) {
	client := clients(t, config)
	wrong := types.UID("another")
	cases := map[string]struct {
		reason string
		how    *metav1.DeleteOptions
		path   string // empty: the name in the object
		want   func(error) bool
		stays  bool
	}{
		"plain":        {reason: "an eviction is a delete"},
		"grace":        {reason: "with its options", how: metav1.NewDeleteOptions(5)},
		"dry":          {reason: "which may be a dry run", how: &metav1.DeleteOptions{DryRun: []string{"All"}}, stays: true},
		"another-uid":  {reason: "or have preconditions", how: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}, want: apierrors.IsConflict, stays: true},
		"old":          {reason: "of the version too", how: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("1")}}, want: apierrors.IsConflict, stays: true},
		"path":         {reason: "the object names the pod of the path", path: "plain", want: apierrors.IsBadRequest, stays: true},
		"broken-store": {reason: "a pod is not deleted unread", how: &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: ptr.To(true)}, want: apierrors.IsInvalid, stays: true},
	}
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded} {
		namespace := "evict-" + strings.ToLower(string(phase))
		for name := range cases {
			podIn(t, client, namespace, name, ready(phase))
		}
		for name, c := range cases {
			path := c.path
			if path == "" {
				path = name
			}
			var status metav1.Status
			var code int
			result := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(path).SubResource("eviction").
				Body(eviction(name, c.how)).Do(t.Context()).StatusCode(&code)
			err := result.Error()
			if c.want == nil && (err != nil || result.Into(&status) != nil || code != 201 || status.Code != 201 || status.Status != metav1.StatusSuccess) {
				t.Errorf("%s %s: %s: got %v, %d and %+v", phase, name, c.reason, err, code, status)
			}
			if c.want != nil && !c.want(err) {
				t.Errorf("%s %s: %s: got error %v", phase, name, c.reason, err)
			}
			gone, why := deleted(t, client, namespace, name)
			if gone == c.stays || gone != (why == "EvictionByEvictionAPI: Eviction API: evicting") {
				t.Errorf("%s %s: %s: deleted is %v, want %v; it says %q", phase, name, c.reason, gone, !c.stays, why)
			}
		}
	}
	pods := client.CoreV1().Pods("evict-running")
	if err := pods.EvictV1(t.Context(), eviction("nobody", nil)); !apierrors.IsNotFound(err) {
		t.Errorf("there is no such pod: got %v", err)
	}
	if err := pods.EvictV1(t.Context(), eviction("plain", nil)); err != nil {
		t.Errorf("a pod that is being deleted is deleted again: got %v", err)
	}
	old := &policyv1beta1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}
	if err := client.CoreV1().RESTClient().Post().Namespace("evict-running").Resource("pods").Name("dry").SubResource("eviction").
		Body(old).VersionedParams(&metav1.CreateOptions{DryRun: []string{"All"}}, metav1.ParameterCodec).Do(t.Context()).Error(); err != nil {
		t.Errorf("the request may be a dry run, and the version v1beta1: got %v", err)
	}
	if gone, _ := deleted(t, client, "evict-running", "dry"); gone {
		t.Error("a dry run deletes nothing")
	}
	if err := pods.EvictV1beta1(t.Context(), old); err != nil {
		t.Errorf("old clients evict: got %v", err)
	}
	if gone, _ := deleted(t, client, "evict-running", "dry"); !gone {
		t.Error("old clients evict as others do")
	}
}

// budgetCase is a pod that one budget protects.
type budgetCase struct {
	reason  string
	pending bool
	unready bool
	policy  policyv1.UnhealthyPodEvictionPolicyType
	status  policyv1.PodDisruptionBudgetStatus
	dry     bool
	cause   string // of a 429; empty: it is allowed
	left    int32
}

func budgetCases() map[string]budgetCase {
	status := func(allowed, healthy, desired int32) policyv1.PodDisruptionBudgetStatus {
		return policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: healthy, DesiredHealthy: desired}
	}
	condition := func(s policyv1.PodDisruptionBudgetStatus, reason string) policyv1.PodDisruptionBudgetStatus {
		s.Conditions = []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: reason, Message: "because", LastTransitionTime: metav1.Now(),
		}}
		return s
	}
	stale := status(5, 5, 1)
	stale.ObservedGeneration = 0
	return map[string]budgetCase{
		"allowed":   {reason: "one is taken", status: status(2, 3, 1), left: 1},
		"last":      {reason: "the last is taken", status: status(1, 2, 1)},
		"dry":       {reason: "a dry run takes none", status: status(1, 2, 1), dry: true, left: 1},
		"exhausted": {reason: "none is left", status: status(0, 1, 1), cause: "The disruption budget exhausted needs 1 healthy pods and has 1 currently"},
		"healthy":   {reason: "the controller has not counted", status: status(0, 2, 1), cause: "The disruption budget healthy does not allow evicting pods currently"},
		"told":      {reason: "the controller said why", status: condition(status(0, 2, 1), "Why"), cause: "The disruption budget told does not allow evicting pods currently (Why): because"},
		"failed":    {reason: "the controller failed", status: condition(status(0, 1, 1), policyv1.SyncFailedReason), cause: "The disruption budget failed does not allow evicting pods currently because it failed sync: because"},
		"stale":     {reason: "the numbers are of an older budget", status: stale, cause: "The disruption budget stale is still being processed by the server.", left: 5},
		"pending":   {reason: "a pod that has not begun is not counted", pending: true, status: status(0, 1, 1)},
		"unready":   {reason: "one that is not ready is, while too few are", unready: true, status: status(0, 1, 2), cause: "The disruption budget unready needs 2 healthy pods and has 1 currently"},
		"spare":     {reason: "else it is not", unready: true, status: status(0, 2, 2)},
		"always":    {reason: "or if the budget says so", unready: true, policy: policyv1.AlwaysAllow, status: status(0, 1, 2)},
	}
}

func evictWithBudget(t *testing.T, config *rest.Config) {
	client := clients(t, config)
	for name, c := range budgetCases() {
		namespace := "budget-" + name
		budgets := client.PolicyV1().PodDisruptionBudgets(namespace)
		makeBudget(t, budgets, name, c.policy, c.status)
		status := ready(corev1.PodRunning)
		if c.pending {
			status.Phase = corev1.PodPending
		}
		if c.unready {
			status.Conditions = nil
		}
		podIn(t, client, namespace, "p", status)
		how := &metav1.DeleteOptions{}
		if c.dry {
			how.DryRun = []string{metav1.DryRunAll}
		}
		// A client waits and tries again, ten times, where the server says when.
		err := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("p").SubResource("eviction").
			MaxRetries(0).Body(eviction("p", how)).Do(t.Context()).Error()
		c.check(t, name, err)
		gone, _ := deleted(t, client, namespace, "p")
		if want := c.cause == "" && !c.dry; gone != want {
			t.Errorf("%s: %s: deleted is %v, want %v", name, c.reason, gone, want)
		}
		b, err := budgets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if b.Status.DisruptionsAllowed != c.left {
			t.Errorf("%s: %s: %d disruptions are left, want %d", name, c.reason, b.Status.DisruptionsAllowed, c.left)
		}
		if _, named := b.Status.DisruptedPods["p"]; named != (c.left < c.status.DisruptionsAllowed) {
			t.Errorf("%s: %s: the pod is in disruptedPods: %v", name, c.reason, named)
		}
		if name == "last" && (len(b.Status.Conditions) != 1 || b.Status.Conditions[0].Reason != policyv1.InsufficientPodsReason) {
			t.Errorf("%s: the budget says that none is left: got %v", name, b.Status.Conditions)
		}
	}
	b := makeBudget(t, client.PolicyV1().PodDisruptionBudgets("budget-allowed"), "second", "", policyv1.PodDisruptionBudgetStatus{})
	b.Status.DisruptionsAllowed = -1
	if _, err := client.PolicyV1().PodDisruptionBudgets("budget-allowed").UpdateStatus(t.Context(), b, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a budget has no debts: got %v", err)
	}
	podIn(t, client, "budget-allowed", "q", ready(corev1.PodRunning))
	err := client.CoreV1().Pods("budget-allowed").EvictV1(t.Context(), eviction("q", nil))
	if err == nil || !strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		t.Errorf("of two budgets none decides: got %v", err)
	}
}

func (c budgetCase) check(t *testing.T, name string, err error) {
	t.Helper()
	switch {
	case c.cause != "":
		var status apierrors.APIStatus
		if !apierrors.IsTooManyRequests(err) || !errors.As(err, &status) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
			t.Errorf("%s: %s: got error %v, want 429 with a cause", name, c.reason, err)
			return
		}
		details := status.Status().Details
		if got := details.Causes[len(details.Causes)-1].Message; got != c.cause {
			t.Errorf("%s: %s: got %q, want %q", name, c.reason, got, c.cause)
		}
	case err != nil:
		t.Errorf("%s: %s: got error %v", name, c.reason, err)
	}
}

func makeBudget(t *testing.T, budgets policyclient.PodDisruptionBudgetInterface, name string,
	policy policyv1.UnhealthyPodEvictionPolicyType, status policyv1.PodDisruptionBudgetStatus,
) *policyv1.PodDisruptionBudget {
	t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	if policy != "" {
		b.Spec.UnhealthyPodEvictionPolicy = &policy
	}
	b, err := budgets.Create(t.Context(), b, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Status = status
	if b, err = budgets.UpdateStatus(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// evictAtOnce has many clients share a budget: each disruption is counted once.
func evictAtOnce(t *testing.T, config *rest.Config) {
	const pods, allowed = 8, 3
	client := clients(t, config)
	makeBudget(t, client.PolicyV1().PodDisruptionBudgets("at-once"), "b", "", policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: pods, DesiredHealthy: pods - allowed,
	})
	for i := range pods {
		podIn(t, client, "at-once", fmt.Sprintf("p%d", i), ready(corev1.PodRunning))
	}
	results := make([]error, pods)
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			results[i] = client.CoreV1().Pods("at-once").EvictV1(t.Context(), eviction(fmt.Sprintf("p%d", i), nil))
		})
	}
	all.Wait()
	evicted := 0
	for i, err := range results {
		if err == nil {
			evicted++
		} else if !apierrors.IsTooManyRequests(err) {
			t.Errorf("pod %d: got %v", i, err)
		}
	}
	b, err := client.PolicyV1().PodDisruptionBudgets("at-once").Get(t.Context(), "b", metav1.GetOptions{})
	if err != nil || evicted != allowed || b.Status.DisruptionsAllowed != 0 || len(b.Status.DisruptedPods) != allowed {
		t.Errorf("%d of %d pods are evicted, want %d: %v, %+v", evicted, pods, allowed, err, b)
	}
}

// TestEvictWithoutPolicy is a plane that serves pods and no budgets.
func TestEvictWithoutPolicy(t *testing.T) {
	t.Parallel()
	client := clients(t, serve(t, kube.Core("pods")))
	podIn(t, client, "a", "p", ready(corev1.PodRunning))
	if err := client.CoreV1().Pods("a").EvictV1(t.Context(), eviction("p", nil)); err != nil {
		t.Errorf("nothing protects the pod: got %v", err)
	}
	if gone, _ := deleted(t, client, "a", "p"); !gone {
		t.Error("the pod is not deleted")
	}
}

func bind(t *testing.T, config *rest.Config) {
	client := clients(t, config)
	pods := client.CoreV1().Pods("bind")
	uid := types.UID("another")
	node := func(kind, name string) corev1.ObjectReference { return corev1.ObjectReference{Kind: kind, Name: name} }
	gated := simplePod("gated")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	bound := simplePod("bound")
	bound.Spec.NodeName = "first"
	going := simplePod("going")
	going.Finalizers = []string{"example.com/f"}
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		meta   metav1.ObjectMeta
		target corev1.ObjectReference
		dry    bool
		want   string // in the error
		code   int32
	}{
		"node":     {reason: "a node", target: node("Node", "n")},
		"no kind":  {reason: "which is what no kind means", target: node("", "n")},
		"dry":      {reason: "a dry run binds nothing", target: node("", "n"), dry: true},
		"pod":      {reason: "pods run on nodes only", target: node("Pod", "n"), want: `target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"`, code: 422},
		"nameless": {reason: "a node has a name", target: node("Node", ""), want: "target.name: Required value", code: 422},
		"uid":      {reason: "it is for one pod", meta: metav1.ObjectMeta{UID: uid}, target: node("", "n"), want: "UID in precondition: another", code: 409},
		"version":  {reason: "in one state", meta: metav1.ObjectMeta{ResourceVersion: "1"}, target: node("", "n"), want: "ResourceVersion in precondition: 1", code: 409},
		"again":    {reason: "a pod stays where it is", pod: bound, target: node("", "n"), want: `pod bound is already assigned to node "first"`, code: 409},
		"gated":    {reason: "a gate holds", pod: gated, target: node("", "n"), want: "pod gated has non-empty .spec.schedulingGates", code: 409},
		"going":    {reason: "it is about to end", pod: going, target: node("", "n"), want: "pod going is being deleted, cannot be assigned to a host", code: 409},
	}
	for name, c := range cases {
		p := c.pod
		if p == nil {
			p = simplePod(strings.ReplaceAll(name, " ", "-"))
		}
		p, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c.pod == going {
			if err := pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		c.meta.Name, c.meta.Annotations, c.meta.Labels = p.Name, map[string]string{"a": "b"}, map[string]string{"zone": "z"}
		options := metav1.CreateOptions{}
		if c.dry {
			options.DryRun = []string{metav1.DryRunAll}
		}
		err = pods.Bind(t.Context(), &corev1.Binding{ObjectMeta: c.meta, Target: c.target}, options)
		var status apierrors.APIStatus
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &status) || !strings.Contains(err.Error(), c.want) || status.Status().Code != c.code) {
			t.Errorf("%s: %s: got error %v, want %d %q", name, c.reason, err, c.code, c.want)
		}
		got, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		is := got.Spec.NodeName + " " + got.Annotations["a"] + " " + got.Labels["zone"]
		want := p.Spec.NodeName + "  "
		if c.want == "" && !c.dry {
			want = "n b z"
		}
		if is != want || (want == "n b z") != isScheduled(got) {
			t.Errorf("%s: %s: node, annotation and label are %q, want %q; conditions are %v", name, c.reason, is, want, got.Status.Conditions)
		}
	}
	bindingResource(t, client)
}

func isScheduled(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return true
		}
	}
	return false
}

// bindingResource is for what schedulers once used, and discovery.
func bindingResource(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	if _, err := client.CoreV1().Pods("bind").Create(t.Context(), simplePod("legacy"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "legacy"}, Target: corev1.ObjectReference{Name: "n"}}
	if err := client.CoreV1().RESTClient().Post().Namespace("bind").Resource("bindings").Body(b).Do(t.Context()).Error(); err != nil {
		t.Errorf("a binding that names its pod: got %v", err)
	}
	if p, err := client.CoreV1().Pods("bind").Get(t.Context(), "legacy", metav1.GetOptions{}); err != nil || p.Spec.NodeName != "n" {
		t.Errorf("the pod is bound: got %v, %v", p, err)
	}
	list, err := client.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range list.APIResources {
		got[r.Name] = fmt.Sprint(r.SingularName, " ", r.Namespaced, " ", r.Group, "/", r.Version, " ", r.Kind, " ", r.Verbs)
	}
	for name, want := range map[string]string{
		"bindings":      "binding true / Binding [create]",
		"pods/binding":  " true / Binding [create]",
		"pods/eviction": " true policy/v1 Eviction [create]",
	} {
		if got[name] != want {
			t.Errorf("discovery of %s: got %q, want %q, as of kube-apiserver", name, got[name], want)
		}
	}
}
