// Package tenants starts the binary as a platform team would: two teams that log in at
// an issuer, with everything that the server has to know in one file.
package tenants

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/test/kept"
	"github.com/sailplane-dev/sailplane/test/program"
)

// name is how the teams reach the server, and loopback the address behind it, which is
// not the one that servers have by default.
const (
	name     = "sailplane.test"
	loopback = "127.0.0.2"
)

// patience is how long something may take that takes seconds at most.
const patience = 2 * time.Minute

// TestTenants is the life of a server of two teams: on the data of an earlier version,
// with OpenID Connect, roles, a quota and limits, changed while it runs, and restarted.
func TestTenants(t *testing.T) {
	l := start(t)
	admin := l.admin(t)
	must(t, teams(t.Context(), admin))
	if _, err := admin.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("what the earlier version stored: %v", err)
	}

	ann, bob := l.client(t, "ann", "red"), l.client(t, "bob", "blue")
	eventually(t, "the issuer's keys are known", func() error {
		_, err := ann.CoreV1().ConfigMaps("red").List(t.Context(), metav1.ListOptions{})
		return err
	})
	check := func(what string, err error, want func(error) bool) {
		t.Helper()
		if !want(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	works := func(err error) bool { return err == nil }
	check("ann writes in her namespace", write(t, ann, "red", "one"), works)
	check("bob writes in his", write(t, bob, "blue", "one"), works)
	check("ann writes in bob's", write(t, ann, "blue", "hers"), apierrors.IsForbidden)
	_, err := bob.CoreV1().Secrets("red").List(t.Context(), metav1.ListOptions{})
	check("bob reads ann's secrets", err, apierrors.IsForbidden)
	_, err = ann.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	check("ann lists namespaces", err, apierrors.IsForbidden)
	check("a stranger's token", write(t, l.as(t, "x.y.z"), "red", "never"), apierrors.IsUnauthorized)

	check("ann reaches her quota", write(t, ann, "red", "two"), works)
	check("ann passes her quota", write(t, ann, "red", "three"), func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
	})
	check("an object over the limit", writeBig(t, bob, "blue"), apierrors.IsRequestEntityTooLargeError)
	watch, err := ann.CoreV1().ConfigMaps("red").Watch(t.Context(), metav1.ListOptions{})
	check("ann watches", err, works)
	_, err = ann.CoreV1().ConfigMaps("red").Watch(t.Context(), metav1.ListOptions{})
	check("ann watches twice", err, apierrors.IsTooManyRequests)
	if watch != nil {
		watch.Stop()
	}

	// Limits and issuers change while it runs.
	l.write(t, "objectSize: 64Ki", "objectSize: 0")
	eventually(t, "the limit is gone", func() error { return writeBig(t, bob, "blue") })
	l.write(t, "audiences: [sailplane]", "audiences: [other]")
	eventually(t, "tokens for the old audience are refused", func() error {
		if err := write(t, bob, "blue", "one"); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("%w, want 401", err)
		}
		return nil
	})
	l.write(t, "audiences: [other]", "audiences: [sailplane]")

	must(t, l.server.Stop())
	l.run(t)
	ann = l.client(t, "ann", "red")
	eventually(t, "the issuer's keys are known again", func() error {
		all, err := ann.CoreV1().ConfigMaps("red").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(all.Items) != 2 {
			err = fmt.Errorf("ann finds %d objects after a restart, want 2", len(all.Items))
		}
		return err
	})
	check("ann's quota holds after a restart", write(t, ann, "red", "three"), apierrors.IsForbidden)
}

// life is a server, its file and its issuer.
type life struct {
	dir, file string
	issuer    *mockoidc.MockOIDC
	server    *kept.Server
}

// start starts the present version on the data of an earlier one.
func start(t *testing.T) *life {
	t.Helper()
	if other, err := net.Listen("tcp", net.JoinHostPort(loopback, "0")); err != nil {
		t.Skipf("this machine has no second loopback address: %v", err)
	} else {
		must(t, other.Close())
	}
	l := &life{dir: filepath.Join(t.TempDir(), "data")}
	l.file = filepath.Join(filepath.Dir(l.dir), "server.yaml")
	must(t, os.MkdirAll(l.dir, 0o700))
	must(t, kept.Unpack(filepath.Join("..", "kept", "testdata", "first-sqlite.tar.gz"), l.dir))
	certificate := l.provide(t)
	must(t, os.WriteFile(l.file, fmt.Appendf(nil, `apiVersion: sailplane.dev/v1alpha1
kind: Server
listen: %s:0
advertise: [%s]
dataDir: %s
resources: [core, apps]
storage:
  url: sqlite:%s
authentication:
  jwt:
  - issuer:
      url: %s
      audiences: [sailplane]
      certificateAuthority: |
%s
    claimMappings:
      username: {claim: sub, prefix: "oidc:"}
      groups: {claim: groups, prefix: "oidc:"}
authorization:
  authorizers:
  - {type: RBAC, name: roles}
audit: {path: none}
limits:
  watches: 1
  objectSize: 64Ki
`, loopback, name, l.dir, filepath.Join(l.dir, "state.db"), l.issuer.Issuer(), indent(certificate)), 0o600))
	l.run(t)
	return l
}

// provide runs an issuer, and returns the certificate of its authority.
func (l *life) provide(t *testing.T) []byte {
	t.Helper()
	lender := httptest.NewTLSServer(http.NotFoundHandler()) // has a certificate for 127.0.0.1
	defer lender.Close()
	config := &tls.Config{Certificates: lender.TLS.Certificates, MinVersion: tls.VersionTLS12}
	var err error
	l.issuer, err = mockoidc.NewServer(nil)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.issuer.Start(tls.NewListener(listener, config), config))
	t.Cleanup(func() { must(t, l.issuer.Shutdown()) })
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lender.Certificate().Raw})
}

// run starts the binary with the file, and nothing else.
func (l *life) run(t *testing.T) {
	t.Helper()
	s, err := kept.Start(t.Context(), binary, l.dir, "serve", "--config", l.file)
	must(t, err)
	l.server = s
	t.Cleanup(s.Kill)
}

// write changes the file of the running server.
func (l *life) write(t *testing.T, old, changed string) {
	t.Helper()
	content, err := os.ReadFile(l.file)
	must(t, err)
	if !strings.Contains(string(content), old) {
		t.Fatalf("%q is not in the file", old)
	}
	must(t, os.WriteFile(l.file, []byte(strings.Replace(string(content), old, changed, 1)), 0o600))
}

// config is that of the kubeconfig that the server wrote: it names the server, and
// the test is the name service.
func (l *life) config(t *testing.T) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", kept.Kubeconfig(l.dir))
	must(t, err)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(c.Host, "https://"))
	must(t, err)
	if host != name {
		t.Fatalf("the kubeconfig is for %s, want %s", c.Host, name)
	}
	c.QPS, c.Timeout = -1, patience
	c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(loopback, port))
	}
	return c
}

func (l *life) admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(l.config(t))
	must(t, err)
	return client
}

// client is that of somebody who logged in at the issuer.
func (l *life) client(t *testing.T, user, group string) kubernetes.Interface {
	t.Helper()
	now := time.Now()
	token, err := l.issuer.Keypair.SignJWT(jwt.MapClaims{
		"iss": l.issuer.Issuer(), "aud": "sailplane", "sub": user, "groups": []string{group},
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	must(t, err)
	return l.as(t, token)
}

// as is a client with a token.
func (l *life) as(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	c := rest.AnonymousClientConfig(l.config(t))
	c.BearerToken = token
	client, err := kubernetes.NewForConfig(c)
	must(t, err)
	return client
}

// teams makes a namespace for each team, where its group may do what ClusterRole edit
// allows, and a quota.
func teams(ctx context.Context, admin kubernetes.Interface) error {
	var errs []error
	for _, team := range []string{"red", "blue"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
		_, err := admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		errs = append(errs, err)
		_, err = admin.RbacV1().RoleBindings(team).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "team"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "oidc:" + team}},
		}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	_, err := admin.CoreV1().ResourceQuotas("red").Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	return errors.Join(append(errs, err)...)
}

// write creates a ConfigMap; one that is there already is no error.
func write(t *testing.T, c kubernetes.Interface, namespace, name string) error {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// writeBig creates a ConfigMap of 100 KiB.
func writeBig(t *testing.T, c kubernetes.Interface, namespace string) error {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "big-"}, Data: map[string]string{"a": strings.Repeat("x", 100<<10)},
	}, metav1.CreateOptions{})
	return err
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v: %v", what, patience, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func indent(text []byte) string {
	return "        " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n        ")
}

// binary is the present version, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		binary, err = program.Sailplane(ctx, dir)
		return err
	}}.Run())
}
