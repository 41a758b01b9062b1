package fairness_test

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

func TestRequestsAtOncePerUser(t *testing.T) {
	t.Parallel()
	g := &gate{entered: make(chan string, 10), open: make(chan struct{})}
	s := serve(t, fairness.Limits{RequestsAtOncePerUser: 1}, g)
	ann, root := s.as(t, "ann"), s.as(t, "root", "system:masters")
	w, err := ann.Get().MaxRetries(0).AbsPath("/api/v1/configmaps").
		VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatalf("a watch: %v", err)
	}
	defer w.Stop()

	// A watch does not count: this one is the first.
	running := []<-chan error{slow(t, ann)}
	<-g.entered
	refused(t, <-slow(t, ann), http.StatusTooManyRequests, `limit RequestsAtOncePerUser is 1: user "ann" already has that many requests running`)
	refused(t, ann.Get().MaxRetries(0).AbsPath("/version").Do(t.Context()).Error(), http.StatusTooManyRequests, "limit RequestsAtOncePerUser is 1")
	again, err := ann.Get().MaxRetries(0).AbsPath("/api/v1/configmaps").
		VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Errorf("a watch while as many requests run: %v", err)
	} else {
		again.Stop()
	}
	if err := s.as(t, "bob").Get().AbsPath("/version").Do(t.Context()).Error(); err != nil {
		t.Errorf("another user: %v", err)
	}
	// Who is exempt enters twice.
	running = append(running, slow(t, root), slow(t, root), slow(t, s.CoreV1().RESTClient()), slow(t, s.CoreV1().RESTClient()))
	for range running[1:] {
		<-g.entered
	}
	close(g.open)
	for _, answer := range running {
		if err := <-answer; !apierrors.IsNotFound(err) {
			t.Errorf("got %v: want 404 from the API", err)
		}
	}
	until(t, "a request that ended makes room", func() bool {
		return ann.Get().MaxRetries(0).AbsPath("/version").Do(t.Context()).Error() == nil
	})
}

// record keeps the users and codes of the requests that were answered.
type record struct {
	mu     sync.Mutex
	events []string
}

func (r *record) ProcessEvents(events ...*auditinternal.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if e.Stage == auditinternal.StageResponseComplete {
			r.events = append(r.events, e.User.Username+" "+e.Verb+" "+strconv.Itoa(int(e.ResponseStatus.Code)))
		}
	}
	return true
}

func (r *record) has(event string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.events, event)
}

func (*record) Run(<-chan struct{}) error { return nil }
func (*record) Shutdown()                 {}
func (*record) String() string            { return "record" }

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (*record) EvaluatePolicyRule(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}
}

// TestRefusalsAreAudited: as those of API Priority and Fairness are.
func TestRefusalsAreAudited(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		limits fairness.Limits
		verb   string
		code   int
	}{
		"rate":    {"the second request is too fast", fairness.Limits{RequestsPerSecond: 0.001, Burst: 1}, "create", http.StatusTooManyRequests},
		"size":    {"no object is so small", fairness.Limits{ObjectBytes: 1}, "create", http.StatusRequestEntityTooLarge},
		"watches": {"one watch is open", fairness.Limits{WatchesPerUser: 1}, "watch", http.StatusTooManyRequests},
		"at once": {"one request is held", fairness.Limits{RequestsAtOncePerUser: 1}, "create", http.StatusTooManyRequests},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &record{}
			g := &gate{entered: make(chan string, 10), open: make(chan struct{})}
			s := serve(t, c.limits, g, controlplane.PartFunc(func(p *controlplane.Plan) error {
				p.Audit("record", r, r)
				return nil
			}))
			ann := s.as(t, "ann")
			watch := func() error {
				w, err := ann.Get().MaxRetries(0).AbsPath("/api/v1/configmaps").
					VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(t.Context())
				if err == nil {
					t.Cleanup(w.Stop)
				}
				return err
			}
			var held <-chan error
			if c.limits.RequestsAtOncePerUser > 0 {
				held = slow(t, ann)
				<-g.entered
			}
			request := func() error { return create(t.Context(), ann, "a", 1) }
			if c.verb == "watch" {
				request = watch
			}
			first := request()
			if second := request(); second == nil {
				t.Fatalf("%s: want a refusal: %v, %v", c.reason, first, second)
			}
			close(g.open)
			if held != nil {
				if err := <-held; !apierrors.IsNotFound(err) {
					t.Errorf("the request that was held got %v: want 404 from the API", err)
				}
			}
			event := "ann " + c.verb + " " + strconv.Itoa(c.code)
			until(t, "the record has "+event, func() bool { return r.has(event) })
		})
	}
}
