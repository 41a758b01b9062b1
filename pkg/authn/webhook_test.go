package authn_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// reviewer is a server that knows the token "good", which is for apples.
type reviewer struct {
	*httptest.Server
	asked atomic.Int32
}

func newReviewer(t *testing.T) *reviewer {
	t.Helper()
	r := &reviewer{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		review := &authenticationv1.TokenReview{}
		if err := json.NewDecoder(req.Body).Decode(review); err != nil || req.URL.Path != "/review" ||
			review.Kind != "TokenReview" || review.APIVersion != "authentication.k8s.io/v1" {
			http.Error(w, "not a review", http.StatusBadRequest)
			return
		}
		if review.Spec.Token == "good" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: "ann", UID: "7", Groups: []string{"growers"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"all"}},
			}}
			if len(review.Spec.Audiences) > 0 {
				review.Status.Audiences = []string{"apples"}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(r.Close)
	return r
}

// kubeconfig writes how to reach the reviewer.
func (r *reviewer) kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["reviewer"] = &clientcmdapi.Cluster{Server: r.URL + "/review", CertificateAuthorityData: pemOf(r.Server)}
	config.Contexts["reviewer"] = &clientcmdapi.Context{Cluster: "reviewer"}
	config.CurrentContext = "reviewer"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	r := newReviewer(t)
	url := serve(t, authn.Webhook{ConfigFile: r.kubeconfig(t)}, authn.Anonymous{Paths: []string{"/version"}})
	got := call{token: "good"}.do(t, url)
	got.Header = nil
	want := who{
		Name: "ann", UID: "7", Groups: []string{"growers", "system:authenticated"},
		Extra: map[string][]string{"scopes": {"all"}}, status: 200,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(who{})); diff != "" {
		t.Errorf("a good token (-want +got):\n%s", diff)
	}
	for range 3 {
		if got := (call{token: "good"}).do(t, url); !named("ann")(got) {
			t.Errorf("a good token again: %d", got.status)
		}
		if got := (call{token: "bad"}).do(t, url); !refused(got) {
			t.Errorf("a bad token: %d", got.status)
		}
	}
	if asked := r.asked.Load(); asked != 2 {
		t.Errorf("asked %d times, want once for each token", asked)
	}
	r.Close()
	if got := (call{token: "other"}).do(t, url); !refused(got) {
		t.Errorf("nobody to ask: %d", got.status)
	}
	if got := (call{token: "good"}).do(t, url); !named("ann")(got) {
		t.Errorf("what is known already: %d", got.status)
	}
}

func TestWebhookCacheEnds(t *testing.T) {
	t.Parallel()
	r := newReviewer(t)
	url := serve(t, authn.Webhook{ConfigFile: r.kubeconfig(t), CacheTTL: time.Nanosecond})
	for range 3 {
		if got := (call{token: "good"}).do(t, url); !named("ann")(got) {
			t.Errorf("a good token: %d", got.status)
		}
	}
	if asked := r.asked.Load(); asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
}

func TestWebhookAudiences(t *testing.T) {
	t.Parallel()
	r := newReviewer(t)
	file := r.kubeconfig(t)
	apples := serve(t, authn.Webhook{ConfigFile: file, Audiences: []string{"pears", "apples"}})
	if got := (call{token: "good"}).do(t, apples); !named("ann")(got) {
		t.Errorf("a token for this server: %d", got.status)
	}
	pears := serve(t, authn.Webhook{ConfigFile: file, Audiences: []string{"pears"}})
	if got := (call{token: "good"}).do(t, pears); !refused(got) {
		t.Errorf("a token for another server: %d", got.status)
	}
}

// TestWebhookReviewedForAudiences: what is asked of the server is asked of the
// other one.
func TestWebhookReviewedForAudiences(t *testing.T) {
	t.Parallel()
	r := newReviewer(t)
	s, err := controlplane.New("test").Storage(memory.Store{}).With(
		authn.Webhook{ConfigFile: r.kubeconfig(t), Audiences: []string{"pears"}}, authentication.TokenReviews{},
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, s.Ready())
	client, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reason      string
		asked, want []string
	}{
		"none":   {"it has to be for this server", nil, nil},
		"its":    {"it is for apples", []string{"apples", "plums"}, []string{"apples"}},
		"others": {"and not for plums", []string{"plums"}, nil},
	} {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "good", Audiences: c.asked}}
		got, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got.Status.Audiences); diff != "" || got.Status.Authenticated != (c.want != nil) {
			t.Errorf("%s: %s: %+v (-want +got):\n%s", name, c.reason, got.Status, diff)
		}
	}
}
