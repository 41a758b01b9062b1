package serviceaccount_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// server is a running server, and a client that may do everything.
type server struct {
	*kubernetes.Clientset
	url string
}

// serve runs a server with the part, what it needs and roles until the test ends.
func serve(t *testing.T, tokens serviceaccount.Tokens, more ...controlplane.Part) *server {
	t.Helper()
	s, err := controlplane.New("tokens").Storage(memory.Store{}).With(
		core.Namespaces{}, core.ServiceAccounts{}, core.Secrets{}, kube.Resources("pods", "nodes"),
		authentication.TokenReviews{}, authentication.SelfSubjectReviews{}, authz.RBAC{}, tokens,
	).With(more...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	front := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		front.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("not ready after a minute")
	}
	return &server{clientOf(t, s.ClientConfig()), front.URL}
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// as is a client with a token.
func (s *server) as(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	config := &rest.Config{Host: s.url, BearerToken: token}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// account makes a service account in the namespace default.
func (s *server) account(t *testing.T, name string) *corev1.ServiceAccount {
	t.Helper()
	account, err := s.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// ask asks for a token of an account in the namespace default.
func (s *server) ask(t *testing.T, name string, spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
	t.Helper()
	return s.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
}

// token is a token of an account in the namespace default.
func (s *server) token(t *testing.T, name string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	r, err := s.ask(t, name, spec)
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// whoami is who the server takes the bearer of a token for.
func (s *server) whoami(t *testing.T, token string) (authenticationv1.UserInfo, error) {
	t.Helper()
	r, err := s.as(t, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return r.Status.UserInfo, nil
}

// review is what the server says of a token.
func (s *server) review(t *testing.T, token string, audiences ...string) authenticationv1.TokenReviewStatus {
	t.Helper()
	r, err := s.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// newKey makes a key, and its PEM.
func newKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	content, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, content
}

func newRSAKey(t *testing.T) (*rsa.PrivateKey, []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

// write writes a file that only its owner may read, at once as a rename does.
func write(t *testing.T, file string, content []byte) {
	t.Helper()
	next := filepath.Join(filepath.Dir(file), "next")
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}
