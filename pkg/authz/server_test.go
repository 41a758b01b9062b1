package authz_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// run runs a server with the parts until the test ends or it is stopped, and
// returns how its own client reaches it.
func run(t *testing.T, d controlplane.Storage, parts ...controlplane.Part) (*rest.Config, func()) {
	t.Helper()
	s, err := controlplane.New("test").Storage(d).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return s.ClientConfig(), stop
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

// untilAnswer asks until the error is as expected: RBAC learns of a binding a
// moment after it was written.
func untilAnswer(t *testing.T, what string, expected func(error) bool, ask func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = ask(); expected(err) {
			return
		}
	}
	t.Errorf("%s: after a minute still: %v", what, err)
}

// patience is the timeout of webhooks that answer, on a machine busy with all tests.
const patience = 30 * time.Second

// reviewer is another server that decides, by user.
type reviewer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []authorizationv1.SubjectAccessReviewSpec
}

// newReviewer starts one that knows some users and has no opinion about others.
func newReviewer(t *testing.T, users map[string]authorizationv1.SubjectAccessReviewStatus) *reviewer {
	t.Helper()
	r := &reviewer{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		review := &authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(req.Body).Decode(review); err != nil || req.URL.Path != "/review" ||
			review.Kind != "SubjectAccessReview" || review.APIVersion != "authorization.k8s.io/v1" {
			http.Error(w, "not a review", http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.asked = append(r.asked, review.Spec)
		r.mu.Unlock()
		review.Status = users[review.Spec.User]
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(r.Close)
	return r
}

// newAbsent is a reviewer whose address is one at which nothing listens. The port
// of a server that was closed may soon be that of another.
func newAbsent(t *testing.T) *reviewer {
	t.Helper()
	r := newReviewer(t, nil)
	r.URL = "https://127.0.0.1:1"
	return r
}

// about are the reviews that it was sent about a user.
func (r *reviewer) about(user string) []authorizationv1.SubjectAccessReviewSpec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.asked), func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.User != user })
}

// authority is the reviewer's certificate.
func (r *reviewer) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
}

// client says how to reach the reviewer.
func (r *reviewer) client() *rest.Config {
	return &rest.Config{Host: r.URL + "/review", TLSClientConfig: rest.TLSClientConfig{CAData: r.authority()}}
}

// kubeconfig says the same in a file.
func (r *reviewer) kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["reviewer"] = &clientcmdapi.Cluster{Server: r.URL + "/review", CertificateAuthorityData: r.authority()}
	config.Contexts["reviewer"] = &clientcmdapi.Context{Cluster: "reviewer"}
	config.CurrentContext = "reviewer"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// replace puts content into a file as one step.
func replace(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// mayList lists ConfigMaps, and returns why not.
func mayList(t *testing.T, client kubernetes.Interface) error {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	return err
}
