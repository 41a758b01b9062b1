package fairness_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := serve(t, kube.FlowControl(), fairness.PriorityAndFairness{})
	levels, schemas := s.FlowcontrolV1().PriorityLevelConfigurations(), s.FlowcontrolV1().FlowSchemas()
	var got []string
	ll, err := levels.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range ll.Items {
		got = append(got, "level "+l.Name)
	}
	ss, err := schemas.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range ss.Items {
		got = append(got, "schema "+s.Name)
	}
	want := []string{
		"level catch-all", "level exempt", "level global-default", "level leader-election", "level workload-high", "level workload-low",
		"schema catch-all", "schema exempt", "schema global-default", "schema kube-controller-manager",
		"schema kube-system-service-accounts", "schema probes", "schema service-accounts", "schema system-leader-election",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects when the server is ready (-want +got):\n%s", diff)
	}

	global, err := schemas.Get(ctx, "global-default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"exempt", "global-default"} {
		if err := schemas.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("delete %s: %v", name, err)
		}
		until(t, name+" comes back", func() bool {
			_, err := schemas.Get(ctx, name, metav1.GetOptions{})
			return err == nil
		})
	}
	if err := levels.Delete(ctx, "workload-low", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "workload-low comes back", func() bool {
		_, err := levels.Get(ctx, "workload-low", metav1.GetOptions{})
		return err == nil
	})

	// A suggested object is the user's when they say so; a mandatory one never is.
	patch := func(name, auto string) {
		t.Helper()
		body := `{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"` + auto + `"}},"spec":{"matchingPrecedence":9000}}`
		if _, err := schemas.Patch(ctx, name, "application/merge-patch+json", []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatalf("patch %s: %v", name, err)
		}
	}
	precedence := func(name string) int32 {
		s, err := schemas.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Spec.MatchingPrecedence
	}
	patch("global-default", "false")
	patch("exempt", "false")
	until(t, "a mandatory spec is as it came", func() bool { return precedence("exempt") == 1 })
	if got := precedence("global-default"); got != 9000 {
		t.Errorf("the user's spec has precedence %d: want 9000", got)
	}
	patch("global-default", "true")
	until(t, "a suggested spec is as it came", func() bool {
		return precedence("global-default") == global.Spec.MatchingPrecedence
	})
}

func TestMissing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		part controlplane.Part
		want string
	}{
		"kinds": {fairness.PriorityAndFairness{}, "needs FlowSchema, which no part serves: add kube.FlowControl()"},
		"one kind": {
			controlplane.Parts{kube.FlowControl("flowschemas"), fairness.PriorityAndFairness{}},
			"needs PriorityLevelConfiguration, which no part serves",
		},
		"negative": {fairness.PriorityAndFairness{Concurrency: -1}, "field Concurrency is -1"},
		"two": {
			controlplane.Parts{kube.FlowControl(), fairness.PriorityAndFairness{}, fairness.PriorityAndFairness{}},
			`flow control: part "fairness.PriorityAndFairness" already provides one`,
		},
		"rate":           {fairness.Limits{RequestsPerSecond: -1}, "field RequestsPerSecond is -1"},
		"burst":          {fairness.Limits{Burst: 2}, "field Burst is 2 without RequestsPerSecond"},
		"at once":        {fairness.Limits{RequestsAtOncePerUser: -1}, "field RequestsAtOncePerUser is -1"},
		"negative count": {fairness.Limits{ObjectsPerResource: -3}, "field ObjectsPerResource is -3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := builder(tc.part).Build(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}

// gate holds requests for the ConfigMap "slow" until it opens.
type gate struct {
	entered      chan string
	open         chan struct{}
	running, top atomic.Int32
}

func (g *gate) Install(p *controlplane.Plan) error {
	p.Wrap(controlplane.Innermost, "gate", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/slow") {
				n := g.running.Add(1)
				defer g.running.Add(-1)
				g.top.Store(max(n, g.top.Load()))
				g.entered <- r.Header.Get("X-Name")
				<-g.open
			}
			next.ServeHTTP(w, r)
		})
	})
	return nil
}

// one makes a level for one request at a time, and a schema that puts a user's
// requests there, and waits until the server goes by them.
func (s *server) one(t *testing.T, name string, response flowcontrolv1.LimitResponse) {
	t.Helper()
	ctx := t.Context()
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To[int32](1), BorrowingLimitPercent: ptr.To[int32](0), LimitResponse: response,
			},
		},
	}
	if _, err := s.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx, level, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			MatchingPrecedence:         10,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"},
				}},
			}},
		},
	}
	if _, err := s.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the schema is in use", func() bool {
		schema, err := s.FlowcontrolV1().FlowSchemas().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range schema.Status.Conditions {
			if c.Type == flowcontrolv1.FlowSchemaConditionDangling && c.Status == flowcontrolv1.ConditionFalse {
				return true
			}
		}
		return false
	})
}

// slow asks for what waits at the gate; the answer comes later.
func slow(t *testing.T, client rest.Interface) <-chan error {
	answer := make(chan error, 1)
	go func() {
		answer <- client.Get().MaxRetries(0).AbsPath("/api/v1/namespaces/default/configmaps/slow").Do(t.Context()).Error()
	}()
	return answer
}

func TestFlows(t *testing.T) {
	t.Parallel()
	g := &gate{entered: make(chan string, 10), open: make(chan struct{})}
	s := serve(t, kube.FlowControl(), fairness.PriorityAndFairness{Concurrency: 1}, g)
	s.one(t, "ann", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject})
	s.one(t, "bob", flowcontrolv1.LimitResponse{
		Type:    flowcontrolv1.LimitResponseTypeQueue,
		Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 1},
	})
	ann, bob, root := s.as(t, "ann"), s.as(t, "bob"), s.as(t, "root", "system:masters")

	first := slow(t, ann)
	if got := <-g.entered; got != "ann" {
		t.Fatalf("%q is at the gate: want ann", got)
	}
	err := <-slow(t, ann)
	if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok {
		t.Errorf("a second request of a level that refuses got %v, to come back after %d s: want 429", err, after)
	}

	served := slow(t, bob)
	if got := <-g.entered; got != "bob" {
		t.Fatalf("%q is at the gate: want bob, who has a level of his own", got)
	}
	if err := root.Get().AbsPath("/api/v1/namespaces").Do(t.Context()).Error(); err != nil {
		t.Errorf("an exempt request: %v", err)
	}
	exempt := slow(t, root)
	if got := <-g.entered; got != "root" {
		t.Errorf("%q is at the gate: want root, who waits for nobody", got)
	}
	// Of two more of bob, one waits in the queue and one finds it full. This comes
	// last, as who waits is refused when a quarter of the request's minute is over.
	second, third := slow(t, bob), slow(t, bob)
	var queued <-chan error
	select {
	case err = <-second:
		queued = third
	case err = <-third:
		queued = second
	}
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("a request that found the queue full got %v: want 429", err)
	}
	if got := g.top.Load(); got != 3 {
		t.Errorf("%d requests were served at a time: want one of each", got)
	}
	close(g.open)
	for name, answer := range map[string]<-chan error{"ann": first, "bob": served, "queued": queued, "root": exempt} {
		if err := <-answer; !apierrors.IsNotFound(err) {
			t.Errorf("%s got %v: want 404 from the API", name, err)
		}
	}
}
