package authz_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

type decide = func(context.Context, authz.Attributes) (authz.Decision, string, error)

// byName allows one user everything.
func byName(name string) decide {
	return func(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
		if a.GetUser().GetName() == name {
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	}
}

// always decides the same of everything.
func always(d authz.Decision, reason string, err error) decide {
	return func(context.Context, authz.Attributes) (authz.Decision, string, error) { return d, reason, err }
}

// TestFunc asks functions in the order of the parts.
func TestFunc(t *testing.T) {
	t.Parallel()
	broken := errors.New("the list of growers is gone")
	cases := map[string]struct {
		reason string
		parts  []controlplane.Part
		ok     func(error) bool
	}{
		"allow":       {"it is allowed", []controlplane.Part{authz.Func("a", always(authz.Allow, "", nil))}, allowed},
		"deny":        {"and denied, with the reason", []controlplane.Part{authz.Func("a", always(authz.Deny, "not today", nil))}, saying(apierrors.IsForbidden, "not today")},
		"no opinion":  {"nobody's opinion is no", []controlplane.Part{authz.Func("a", always(authz.NoOpinion, "who?", nil))}, saying(apierrors.IsForbidden, "who?")},
		"allow first": {"the first decides", []controlplane.Part{authz.Func("a", always(authz.Allow, "", nil)), authz.Func("b", always(authz.Deny, "", nil))}, allowed},
		"deny first": {
			"the first decides",
			[]controlplane.Part{authz.Func("a", always(authz.Deny, "", nil)), authz.Func("b", always(authz.Allow, "", nil))},
			apierrors.IsForbidden,
		},
		"second": {
			"the second is asked when the first does not know",
			[]controlplane.Part{authz.Func("a", always(authz.NoOpinion, "", nil)), authz.Func("b", always(authz.Allow, "", nil))},
			allowed,
		},
		"error": {
			"an error is told when nobody allows",
			[]controlplane.Part{authz.Func("a", always(authz.NoOpinion, "", broken)), authz.Groups{}},
			saying(apierrors.IsInternalError, broken.Error()),
		},
		"error and no": {
			"with Deny nobody else is asked",
			[]controlplane.Part{authz.Func("a", always(authz.Deny, "", broken)), authz.Func("b", always(authz.Allow, "", nil))},
			apierrors.IsInternalError,
		},
		"error, allowed": {
			"somebody else may allow",
			[]controlplane.Part{authz.Func("a", always(authz.NoOpinion, "", broken)), authz.Func("b", always(authz.Allow, "", nil))},
			allowed,
		},
		"nobody":    {"without an authorizer only system:masters may", nil, apierrors.IsForbidden},
		"no groups": {"groups that name none allow nobody", []controlplane.Part{authz.Groups{}}, apierrors.IsForbidden},
		"groups": {
			"parts of other kinds have their place too",
			[]controlplane.Part{authz.Groups{Admins: []string{"growers"}}, authz.Func("a", always(authz.Deny, "", nil))},
			allowed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, _ := run(t, memory.Store{}, bound(tc.parts...)...)
			if err := mayList(t, as(t, config, "alice", "growers")); !tc.ok(err) {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if err := mayList(t, as(t, config, "")); err != nil {
				t.Errorf("the administrator: %v", err)
			}
		})
	}
}

func TestFuncFields(t *testing.T) {
	t.Parallel()
	yes := always(authz.Allow, "", nil)
	cases := map[string]struct {
		reason string
		parts  []controlplane.Part
		want   string
	}{
		"name":  {"errors need one", []controlplane.Part{authz.Func("", yes)}, "the name is empty"},
		"nil":   {"nothing to ask", []controlplane.Part{authz.Func("a", nil)}, `part "authz.Func a": the function is nil`},
		"twice": {"metrics would mix them up", []controlplane.Part{authz.Func("a", yes), authz.Func("a", yes)}, `part "authz.Func a": authorizer "a": part "authz.Func a" already has one with that name`},
	}
	for name, tc := range cases {
		_, err := controlplane.New("test").Storage(memory.Store{}).With(tc.parts...).Build()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: %v, want %s", name, tc.reason, err, tc.want)
		}
	}
}

// witness keeps what it was asked about alice, and allows her what is labelled so.
type witness struct {
	mu    sync.Mutex
	asked []string
}

func (w *witness) decide(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.GetUser().GetName() != "alice" {
		return authz.NoOpinion, "", nil
	}
	if a.GetResource() == "selfsubjectaccessreviews" {
		return authz.Allow, "", nil
	}
	byField, fieldErr := a.GetFieldSelector()
	byLabel, labelErr := a.GetLabelSelector()
	w.mu.Lock()
	w.asked = append(w.asked, fmt.Sprint(a.GetVerb(), " ", byField, " ", byLabel, " ", fieldErr != nil, " ", labelErr != nil))
	w.mu.Unlock()
	for _, r := range byLabel {
		if r.Key() == "owner" && r.Operator() == selection.Equals && r.Values().Has("alice") {
			return authz.Allow, "", nil
		}
	}
	return authz.NoOpinion, "only what is hers", nil
}

func (w *witness) last(t *testing.T) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		t.Fatal("nothing was asked")
	}
	return w.asked[len(w.asked)-1]
}

// TestSelectors: KEP 4601. A user may be let list what is theirs, and no more.
func TestSelectors(t *testing.T) {
	t.Parallel()
	w := &witness{}
	config, _ := run(t, memory.Store{}, bound(authz.Func("owners", w.decide))...)
	admin, alice := as(t, config, "").CoreV1().ConfigMaps("default"), as(t, config, "alice").CoreV1().ConfigMaps("default")
	for _, owner := range []string{"alice", "bob"} {
		if _, err := admin.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "of-" + owner, Labels: map[string]string{"owner": owner}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hers := metav1.ListOptions{LabelSelector: "owner=alice", FieldSelector: "metadata.name!=x"}
	selected := " [{!= metadata.name x}] owner=alice false false"
	cases := map[string]struct {
		reason string
		do     func(metav1.ListOptions) error
		asked  string
	}{
		"list": {"a list has selectors", func(o metav1.ListOptions) error {
			list, err := alice.List(t.Context(), o)
			if err == nil && (len(list.Items) != 1 || list.Items[0].Name != "of-alice") {
				return fmt.Errorf("%d items", len(list.Items))
			}
			return err
		}, "list"},
		"watch": {"so has a watch", func(o metav1.ListOptions) error {
			watch, err := alice.Watch(t.Context(), o)
			if err == nil {
				watch.Stop()
			}
			return err
		}, "watch"},
		"delete": {"and the deletion of a collection", func(o metav1.ListOptions) error {
			return alice.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, o)
		}, "deletecollection"},
	}
	for name, tc := range cases {
		if err := tc.do(hers); err != nil {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
		if diff := cmp.Diff(tc.asked+selected, w.last(t)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
		for _, more := range []metav1.ListOptions{{}, {LabelSelector: "owner in (alice,bob)"}, {LabelSelector: "owner!=alice"}} {
			if err := tc.do(more); !saying(apierrors.IsForbidden, "only what is hers")(err) {
				t.Errorf("%s: more than is hers, %q: %v", name, more.LabelSelector, err)
			}
		}
	}
	// An unreadable selector narrows nothing.
	if _, err := alice.List(t.Context(), metav1.ListOptions{LabelSelector: "owner=alice,=="}); !apierrors.IsForbidden(err) {
		t.Errorf("a selector that cannot be read: %v", err)
	}
	if got := w.last(t); got != "list []  false true" {
		t.Errorf("a selector that cannot be read is asked as %s", got)
	}
}

func TestSelectorsOfReviews(t *testing.T) {
	t.Parallel()
	w := &witness{}
	r := newReviewer(t, nil)
	config, _ := run(t, memory.Store{}, bound(authz.Webhook{Client: r.client(), Timeout: patience, UnauthorizedTTL: -1}, authz.Func("owners", w.decide))...)
	reviews := as(t, config, "alice").AuthorizationV1().SelfSubjectAccessReviews()
	cases := map[string]struct {
		reason  string
		labels  *authorizationv1.LabelSelectorAttributes
		allowed bool
	}{
		"raw":          {"as in a URL", &authorizationv1.LabelSelectorAttributes{RawSelector: "owner=alice"}, true},
		"requirements": {"In with one value is no =", &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "owner", Operator: "In", Values: []string{"alice"}}}}, false},
		"other":        {"not hers", &authorizationv1.LabelSelectorAttributes{RawSelector: "owner=bob"}, false},
		"none":         {"all of them", nil, false},
	}
	for name, tc := range cases {
		got, err := reviews.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: "default", LabelSelector: tc.labels},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Allowed != tc.allowed {
			t.Errorf("%s: %s: %+v", name, tc.reason, got.Status)
		}
		told := r.about("alice")
		if sent := told[len(told)-1].ResourceAttributes.LabelSelector; (sent != nil) != (tc.labels != nil) {
			t.Errorf("%s: the webhook was sent %+v", name, sent)
		}
	}
}
