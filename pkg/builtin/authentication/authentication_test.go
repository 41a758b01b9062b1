package authentication_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// tokens knows one token, for the audience garden.
func tokens(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	switch token {
	case "alice":
		who := &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"gardeners"}, Extra: map[string][]string{"scope": {"a"}}}
		all := authenticator.Audiences{"garden"}
		if wanted, ok := authenticator.AudiencesFrom(ctx); ok {
			all = all.Intersect(wanted)
		}
		return &authenticator.Response{User: who, Audiences: all}, true, nil
	case "broken":
		return nil, false, errors.New("it is broken")
	}
	return nil, false, nil
}

// open lets everybody in at one path, as anonymous access does.
func open(r *http.Request) (*authenticator.Response, bool, error) {
	if r.URL != nil && r.URL.Path == "/open" {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "system:anonymous"}}, true, nil
	}
	return nil, false, nil
}

func TestReviews(t *testing.T) {
	s, err := controlplane.New("reviews").Storage(memory.Store{}).With(
		authentication.TokenReviews{}, authentication.SelfSubjectReviews{},
		controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Authenticate("tokens", bearertoken.New(authenticator.TokenFunc(tokens)))
			p.Authenticate("open", authenticator.RequestFunc(open))
			return nil
		})).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-s.Ready()
	client, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reason string
		spec   authenticationv1.TokenReviewSpec
		user   string
		err    string
	}{
		"known":          {"whose it is", authenticationv1.TokenReviewSpec{Token: "alice"}, "alice", ""},
		"audience":       {"for whom it is", authenticationv1.TokenReviewSpec{Token: "alice", Audiences: []string{"pond", "garden"}}, "alice", ""},
		"other audience": {"it is for somebody else", authenticationv1.TokenReviewSpec{Token: "alice", Audiences: []string{"pond"}}, "", "not for the audiences"},
		"unknown":        {"nobody's", authenticationv1.TokenReviewSpec{Token: "bob"}, "", ""},
		"broken":         {"why", authenticationv1.TokenReviewSpec{Token: "broken"}, "", "it is broken"},
	} {
		got, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: c.spec}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Status.Authenticated != (c.user != "") || got.Status.User.Username != c.user || !strings.Contains(got.Status.Error, c.err) {
			t.Errorf("%s: %s: %+v", name, c.reason, got.Status)
		}
		if c.user != "" && (len(got.Status.Audiences) != 1 || got.Status.User.Extra["scope"][0] != "a" || got.Status.User.Groups[0] != "gardeners") {
			t.Errorf("%s: %+v", name, got.Status)
		}
	}
	if _, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{}, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("no token: %v", err)
	}
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(who.Status.UserInfo.Username, "system:") {
		t.Errorf("the loopback client: %+v, %v", who, err)
	}
}
