package authz_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// opinions are those of the reviewers: alice may, bob may not.
func opinions() map[string]authorizationv1.SubjectAccessReviewStatus {
	return map[string]authorizationv1.SubjectAccessReviewStatus{
		"alice": {Allowed: true, Reason: "alice gardens"},
		"bob":   {Denied: true, Reason: "bob is on leave"},
		"dave":  {Reason: "never heard of dave"},
		"eve":   {Allowed: true, Denied: true},
	}
}

// bound are the parts of a server with ConfigMaps, on which RBAC will allow bob
// and carol to list them when letViewers ran.
func bound(authorizers ...controlplane.Part) []controlplane.Part {
	return append(authorizers, rbac.All(), authorization.All(), core.Namespaces{}, core.ConfigMaps{})
}

func letViewers(t *testing.T, config *rest.Config) {
	t.Helper()
	admin := as(t, config, "")
	for _, user := range []string{"bob", "carol"} {
		bind(t, admin, "default", "view", user)
	}
}

// saying is an error of a status with a text.
func saying(is func(error) bool, text string) func(error) bool {
	return func(err error) bool { return err != nil && is(err) && strings.Contains(err.Error(), text) }
}

func allowed(err error) bool { return err == nil }

func TestWebhook(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	down := newAbsent(t)
	silent := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that the client went away
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	mute := &rest.Config{Host: silent.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	forbidden, internal := apierrors.IsForbidden, apierrors.IsInternalError
	type users map[string]func(error) bool
	cases := map[string]struct {
		reason string
		parts  []controlplane.Part
		users  users
	}{
		"first": {
			"what the webhook has no opinion about is RBAC's",
			[]controlplane.Part{authz.Webhook{ConfigFile: r.kubeconfig(t), Timeout: patience}, authz.RBAC{}},
			users{
				"alice": allowed, "bob": saying(forbidden, "bob is on leave"), "carol": allowed,
				"dave": saying(forbidden, "never heard of dave"), "eve": saying(internal, "both allow and deny"),
			},
		},
		"last": {
			"the webhook is asked what RBAC does not allow",
			[]controlplane.Part{authz.RBAC{}, authz.Webhook{Client: r.client(), Timeout: patience}},
			users{"alice": allowed, "bob": allowed, "carol": allowed, "dave": saying(forbidden, "never heard of dave")},
		},
		"down": {
			"nobody is allowed what the webhook might deny",
			[]controlplane.Part{authz.Webhook{Client: down.client()}, authz.RBAC{}},
			users{"alice": internal, "carol": internal},
		},
		"down, no opinion": {
			"others decide, and what they do not allow is told as the error it is",
			[]controlplane.Part{authz.Webhook{Client: down.client(), FailurePolicy: authz.NoOpinion}, authz.RBAC{}},
			users{"alice": internal, "carol": allowed},
		},
		"silent": {
			"an answer that does not come is no answer",
			[]controlplane.Part{authz.Webhook{Client: mute, Timeout: time.Millisecond, FailurePolicy: authz.NoOpinion}, authz.RBAC{}},
			users{"alice": internal, "carol": allowed},
		},
		"conditions": {
			"who does not match is not asked about",
			[]controlplane.Part{authz.Webhook{Client: r.client(), Timeout: patience, MatchConditions: []string{
				"has(request.resourceAttributes)", "request.user != 'bob'",
			}}, authz.RBAC{}},
			users{"alice": allowed, "bob": allowed, "dave": saying(forbidden, "never heard of dave")},
		},
		"bad condition": {
			"what cannot be evaluated fails as the policy says",
			[]controlplane.Part{authz.Webhook{Client: r.client(), Timeout: patience, MatchConditions: []string{"request.extra['team'][0] == 'a'"}}, authz.RBAC{}},
			users{"alice": internal, "carol": internal},
		},
		"two": {
			"the next webhook is asked when one is down",
			[]controlplane.Part{
				authz.Webhook{Client: down.client(), FailurePolicy: authz.NoOpinion}, authz.Webhook{Name: "second", Client: r.client(), Timeout: patience}, authz.RBAC{},
			},
			users{"alice": allowed, "bob": saying(forbidden, "bob is on leave"), "carol": allowed},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, _ := run(t, memory.Store{}, bound(tc.parts...)...)
			letViewers(t, config)
			for user, ok := range tc.users {
				client := as(t, config, user)
				untilAnswer(t, user+": "+tc.reason, ok, func() error { return mayList(t, client) })
			}
		})
	}
}

func TestWebhookIsSkipped(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	config, _ := run(t, memory.Store{}, bound(authz.Func("root", byName("root")), authz.Webhook{
		Client: r.client(), Timeout: patience, MatchConditions: []string{"request.user != 'dave'"},
	})...)
	if err := mayList(t, as(t, config, "root")); err != nil {
		t.Error(err)
	}
	if err := mayList(t, as(t, config, "dave")); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "never heard") {
		t.Errorf("a condition is false: %v", err)
	}
	if err := mayList(t, as(t, config, "alice")); err != nil {
		t.Error(err)
	}
	for user, want := range map[string]int{"": 0, "root": 0, "dave": 0, "alice": 1} {
		if got := r.about(user); len(got) != want {
			t.Errorf("user %q: %d reviews, want %d", user, len(got), want)
		}
	}
}

func TestWebhookRemembers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		yes, no    time.Duration
		alice, bob int
	}{
		"both":    {"answers are kept", 0, 0, 1, 1},
		"yes":     {"only those that allow", 0, -1, 1, 3},
		"no":      {"only those that do not", -1, 0, 3, 1},
		"neither": {"none", -1, -1, 3, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReviewer(t, opinions())
			config, _ := run(t, memory.Store{}, bound(authz.Webhook{Client: r.client(), Timeout: patience, AuthorizedTTL: tc.yes, UnauthorizedTTL: tc.no})...)
			alice, bob := as(t, config, "alice"), as(t, config, "bob")
			for range 3 {
				if err := mayList(t, alice); err != nil {
					t.Error(err)
				}
				if err := mayList(t, bob); !apierrors.IsForbidden(err) {
					t.Error(err)
				}
			}
			if a, b := len(r.about("alice")), len(r.about("bob")); a != tc.alice || b != tc.bob {
				t.Errorf("%s: %d and %d reviews, want %d and %d", tc.reason, a, b, tc.alice, tc.bob)
			}
		})
	}
}

// TestWebhookIsTold compares what the other server gets to know.
func TestWebhookIsTold(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	config, _ := run(t, memory.Store{}, bound(authz.Webhook{Client: r.client(), Timeout: patience})...)
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "alice", UID: "7", Groups: []string{"growers"}, Extra: map[string][]string{"example.com/scopes": {"read", "write"}},
	}
	alice, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = alice.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=soil,metadata.namespace!=other", LabelSelector: "bed in (north,south),!fallow",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alice.RESTClient().Get().AbsPath("/version").DoRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	who := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "7", Groups: []string{"growers", "system:authenticated"},
		Extra: map[string]authorizationv1.ExtraValue{"example.com/scopes": {"read", "write"}},
	}
	list, version := who, who
	list.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: "default", Verb: "list", Version: "v1", Resource: "configmaps", Name: "soil",
		FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
			{Key: "metadata.name", Operator: "In", Values: []string{"soil"}},
			{Key: "metadata.namespace", Operator: "NotIn", Values: []string{"other"}},
		}},
		LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
			{Key: "bed", Operator: "In", Values: []string{"north", "south"}}, {Key: "fallow", Operator: "DoesNotExist"},
		}},
	}
	version.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: "/version", Verb: "get"}
	if diff := cmp.Diff([]authorizationv1.SubjectAccessReviewSpec{list, version}, r.about("alice")); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
}

// TestWebhookFields are the errors of Build.
func TestWebhookFields(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, nil)
	good := r.kubeconfig(t)
	open, none, empty := r.kubeconfig(t), filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "empty")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	replace(t, empty, "apiVersion: v1\nkind: Config\n")
	cases := map[string]struct {
		reason string
		part   authz.Webhook
		want   string
	}{
		"nothing":    {"nobody to ask", authz.Webhook{}, `part "authz.Webhook": fields ConfigFile and Client: set exactly one`},
		"both":       {"one would be ignored", authz.Webhook{ConfigFile: good, Client: r.client()}, "fields ConfigFile and Client: set exactly one"},
		"no file":    {"it is not there", authz.Webhook{ConfigFile: none}, "field ConfigFile: " + none},
		"empty file": {"it says nothing", authz.Webhook{ConfigFile: empty}, "field ConfigFile: " + empty},
		"mode": {
			"everybody may read the credentials",
			authz.Webhook{ConfigFile: open},
			"field ConfigFile: " + open + ": every user of this machine has permissions on it (mode 0644): run chmod 0600 " + open,
		},
		"no host": {"nobody to ask", authz.Webhook{Client: &rest.Config{}}, "field Client: it has no URL of the authorization server"},
		"bad CA": {
			"not a certificate",
			authz.Webhook{Client: &rest.Config{Host: r.URL, TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}},
			"field Client: unable to load root certificates",
		},
		"name":    {"metrics have it", authz.Webhook{Client: r.client(), Name: "No Name"}, `field Name: "No Name": a lowercase RFC 1123 subdomain`},
		"timeout": {"requests wait for it", authz.Webhook{Client: r.client(), Timeout: time.Minute}, "field Timeout: 1m0s: want at most 30s, or 0 for 3s"},
		"policy": {
			"down is not yes",
			authz.Webhook{Client: r.client(), FailurePolicy: authz.Allow},
			"field FailurePolicy: 1: want authz.Deny or authz.NoOpinion",
		},
		"condition":     {"not CEL", authz.Webhook{Client: r.client(), MatchConditions: []string{"true", "request.user =="}}, "field MatchConditions[1]: Invalid value"},
		"not a boolean": {"nor a condition", authz.Webhook{Client: r.client(), MatchConditions: []string{"request.user"}}, "field MatchConditions[0]: Invalid value"},
		"no such field": {"a typing error", authz.Webhook{Client: r.client(), MatchConditions: []string{"request.usr == 'a'"}}, "undefined field 'usr'"},
		"all":           {"all at once", authz.Webhook{Timeout: -1, FailurePolicy: 7}, "or 0 for 3s\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := controlplane.New("test").Storage(memory.Store{}).With(tc.part).Build()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
	_, err := controlplane.New("test").Storage(memory.Store{}).With(authz.Webhook{Client: r.client()}, authz.Webhook{ConfigFile: good}).Build()
	if err == nil || !strings.Contains(err.Error(), `authorizer "authorization webhook webhook": part "authz.Webhook" already has one with that name`) {
		t.Errorf("two of one name: %v", err)
	}
}

// TestWebhookCannotList: what another server allows is not known as a list.
func TestWebhookCannotList(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	config, _ := run(t, memory.Store{}, bound(authz.Webhook{Client: r.client(), Timeout: patience}, authz.RBAC{})...)
	bind(t, as(t, config, ""), "default", "view", "alice")
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}
	until(t, "the rules of the role, and that these are not all", func() bool {
		got, err := as(t, config, "alice").AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Incomplete && len(got.Status.ResourceRules) > 0
	})
}
