package clients

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"
	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestOpenIDConnect logs in at an OpenID Connect provider, as a browser does for
// kubectl, and at the server with the ID token it gives.
func TestOpenIDConnect(t *testing.T) {
	t.Parallel()
	provider, certificate := startProvider(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "authentication.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [%s]
    certificateAuthority: |
%s
  claimMappings:
    username: {expression: '"oidc:" + claims.email'}
    groups: {claim: groups, prefix: "oidc:"}
  claimValidationRules:
  - expression: claims.email_verified == true
    message: the e-mail address is not verified
`, provider.Issuer(), provider.ClientID, indent(certificate)), 0o600))
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	s, err := controlplane.New("oidc").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: kubeconfig}, authn.JWT{ConfigFile: config},
		authz.Groups{Admins: []string{"oidc:design"}}, authentication.SelfSubjectReviews{},
	).Build()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)

	jane := rest.AnonymousClientConfig(admin)
	jane.BearerToken = logIn(t, provider, certificate)
	// The server asks the provider for its keys in the background.
	var who *authenticationv1.SelfSubjectReview
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if who, err = whoami(t, jane); err == nil {
			break
		}
		if !apierrors.IsUnauthorized(err) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if got, want := fmt.Sprint(who.Status.UserInfo.Username, who.Status.UserInfo.Groups),
		"oidc:jane.doe@example.com[oidc:engineering oidc:design system:authenticated]"; got != want {
		t.Errorf("logged in as %s, want %s", got, want)
	}

	provider.QueueUser(&mockoidc.MockUser{Subject: "2", Email: "jane.doe@example.com", Groups: []string{"design"}})
	unverified := rest.CopyConfig(jane)
	unverified.BearerToken = logIn(t, provider, certificate)
	if _, err := whoami(t, unverified); !apierrors.IsUnauthorized(err) {
		t.Errorf("with an e-mail address that is not verified: %v, want 401", err)
	}
	provider.FastForward(-time.Hour) // tokens from then on are of an hour ago, and last ten minutes
	expired := rest.CopyConfig(jane)
	expired.BearerToken = logIn(t, provider, certificate)
	if _, err := whoami(t, expired); !apierrors.IsUnauthorized(err) {
		t.Errorf("with an expired token: %v, want 401", err)
	}
}

// startProvider runs a provider until the test ends. It serves HTTPS, as the
// structured configuration asks for.
func startProvider(t *testing.T) (provider *mockoidc.MockOIDC, certificate []byte) {
	t.Helper()
	lender := httptest.NewTLSServer(http.NotFoundHandler()) // has a certificate for 127.0.0.1
	defer lender.Close()
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lender.Certificate().Raw})
	config := &tls.Config{Certificates: lender.TLS.Certificates, MinVersion: tls.VersionTLS12}
	provider, err := mockoidc.NewServer(nil)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, provider.Start(tls.NewListener(listener, config), config))
	t.Cleanup(func() { must(t, provider.Shutdown()) })
	return provider, certificate
}

// logIn follows the authorization code flow and returns the ID token.
func logIn(t *testing.T, provider *mockoidc.MockOIDC, certificate []byte) string {
	t.Helper()
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: certificate}})
	must(t, err)
	defer client.CloseIdleConnections()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, client)
	flow := &oauth2.Config{
		ClientID: provider.ClientID, ClientSecret: provider.ClientSecret, RedirectURL: "http://localhost:8000/",
		Scopes:   []string{"openid", "email", "groups", "profile"},
		Endpoint: oauth2.Endpoint{AuthURL: provider.AuthorizationEndpoint(), TokenURL: provider.TokenEndpoint()},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, flow.AuthCodeURL("state"), nil)
	must(t, err)
	resp, err := client.Do(request)
	must(t, err)
	resp.Body.Close()
	back, err := resp.Location()
	must(t, err)
	token, err := flow.Exchange(ctx, back.Query().Get("code"))
	must(t, err)
	id, _ := token.Extra("id_token").(string)
	return id
}

func whoami(t *testing.T, config *rest.Config) (*authenticationv1.SelfSubjectReview, error) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
}

func indent(text []byte) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n      ")
}
