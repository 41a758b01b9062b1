package authorization_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// judge lets alice get and list in the namespace garden, forbids bob, and reports
// what it was asked.
type judge struct{ asked func(authorizer.Attributes) }

func (j judge) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	j.asked(a)
	switch {
	case a.GetUser().GetName() == "alice" && a.GetNamespace() == "garden" && a.GetVerb() == "get":
		return authorizer.DecisionAllow, "alice gardens", nil
	case a.GetUser().GetName() == "bob":
		return authorizer.DecisionDeny, "not bob", nil
	case a.GetUser().GetName() == "carol":
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("nobody knows carol")
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func serve(t *testing.T) (*kubernetes.Clientset, *authorizer.Attributes) {
	t.Helper()
	var last authorizer.Attributes
	s, err := controlplane.New("reviews").Storage(memory.Store{}).With(authorization.All(),
		controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Authorize("judge", judge{asked: func(a authorizer.Attributes) { last = a }})
			return nil
		})).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client, &last
}

func TestSubjectAccessReview(t *testing.T) {
	client, last := serve(t)
	get := &authorizationv1.ResourceAttributes{Namespace: "garden", Verb: "get", Resource: "configmaps"}
	for name, c := range map[string]struct {
		reason string
		spec   authorizationv1.SubjectAccessReviewSpec
		want   authorizationv1.SubjectAccessReviewStatus
		err    string
	}{
		"allowed": {
			"as the authorizer says",
			authorizationv1.SubjectAccessReviewSpec{User: "alice", ResourceAttributes: get},
			authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "alice gardens"},
			"",
		},
		"denied": {
			"the authorizer forbids it",
			authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: get},
			authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "not bob"},
			"",
		},
		"nobody": {
			"no opinion is no",
			authorizationv1.SubjectAccessReviewSpec{User: "dave", ResourceAttributes: get},
			authorizationv1.SubjectAccessReviewStatus{},
			"",
		},
		"error": {
			"what went wrong is told",
			authorizationv1.SubjectAccessReviewSpec{User: "carol", ResourceAttributes: get},
			authorizationv1.SubjectAccessReviewStatus{EvaluationError: "nobody knows carol"},
			"",
		},
		"masters": {
			"the rule of the plane itself",
			authorizationv1.SubjectAccessReviewSpec{
				User: "bob", Groups: []string{"system:masters"}, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x", Verb: "get"},
			},
			authorizationv1.SubjectAccessReviewStatus{Allowed: true},
			"",
		},
		"both": {
			"one question at a time",
			authorizationv1.SubjectAccessReviewSpec{
				User: "bob", ResourceAttributes: get, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x"},
			},
			authorizationv1.SubjectAccessReviewStatus{},
			"cannot be specified in combination with resourceAttributes",
		},
		"neither": {
			"a question",
			authorizationv1.SubjectAccessReviewSpec{User: "bob"},
			authorizationv1.SubjectAccessReviewStatus{},
			"exactly one of nonResourceAttributes or resourceAttributes must be specified",
		},
		"who": {
			"about somebody",
			authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: get},
			authorizationv1.SubjectAccessReviewStatus{},
			"at least one of user or group must be specified",
		},
	} {
		got, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: c.spec}, metav1.CreateOptions{})
		switch {
		case c.err != "":
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %s: got %v, want %s", name, c.reason, err, c.err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case got.Status != c.want:
			t.Errorf("%s: %s: got %+v, want %+v", name, c.reason, got.Status, c.want)
		}
	}
	selecting := get.DeepCopy()
	selecting.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: "a=b"}
	selecting.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
		{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn, Values: []string{"x"}},
	}}
	if _, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "alice", ResourceAttributes: selecting},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels, _ := (*last).GetLabelSelector()
	fields, _ := (*last).GetFieldSelector()
	if got, want := fmt.Sprint(labels, fields), "a=b [{= metadata.name x}]"; got != want {
		t.Errorf("the authorizer was asked with %s, want %s", got, want)
	}
}

func TestOtherReviews(t *testing.T) {
	client, _ := serve(t)
	api := client.AuthorizationV1()
	local := &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "alice", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "garden", Verb: "get"},
		},
	}
	if got, err := api.LocalSubjectAccessReviews("garden").Create(t.Context(), local, metav1.CreateOptions{}); err != nil || !got.Status.Allowed {
		t.Errorf("in a namespace: %+v, %v", got, err)
	}
	local.Spec.ResourceAttributes.Namespace = "pond"
	if _, err := api.LocalSubjectAccessReviews("garden").Create(t.Context(), local, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("in another namespace: %v", err)
	}
	self := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets"},
	}}
	if got, err := api.SelfSubjectAccessReviews().Create(t.Context(), self, metav1.CreateOptions{}); err != nil || !got.Status.Allowed {
		t.Errorf("oneself: %+v, %v", got, err)
	}
	rules := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "garden"}}
	got, err := api.SelfSubjectRulesReviews().Create(t.Context(), rules, metav1.CreateOptions{})
	if err != nil || len(got.Status.ResourceRules) != 1 || got.Status.ResourceRules[0].Verbs[0] != "*" || !got.Status.Incomplete {
		t.Errorf("the rules of a master, of which the judge lists none: %+v, %v", got, err)
	}
	rules.Spec.Namespace = ""
	if _, err := api.SelfSubjectRulesReviews().Create(t.Context(), rules, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("rules of no namespace: %v", err)
	}
	if _, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a group that no part serves: %v", err)
	}
}
