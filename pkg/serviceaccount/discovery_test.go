package serviceaccount_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
)

// published is a JWK set.
type published struct {
	Keys []struct{ Kty, Alg, Kid, Use, Crv, X, Y, N, E string }
}

// get reads a document as a client.
func get(t *testing.T, c *kubernetes.Clientset, path string, into any) {
	t.Helper()
	content, err := c.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", content, err)
	}
}

func ids(s published) (all []string) {
	for _, k := range s.Keys {
		all = append(all, k.Kid)
	}
	return all
}

func number(t *testing.T, encoded string) *big.Int {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return new(big.Int).SetBytes(b)
}

// TestDiscovery: others find the keys, and verify tokens with them.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	s := serve(t, serviceaccount.Tokens{Issuer: "https://tokens.example.com/shop/"})
	s.account(t, "builder")
	token := s.token(t, "builder", authenticationv1.TokenRequestSpec{Audiences: []string{"elsewhere"}})
	var got map[string]any
	get(t, s.Clientset, "/.well-known/openid-configuration", &got)
	want := map[string]any{
		"issuer": claimsOf(t, token)["iss"], "jwks_uri": "https://tokens.example.com/shop/openid/v1/jwks",
		"response_types_supported": []any{"id_token"}, "subject_types_supported": []any{"public"},
		"id_token_signing_alg_values_supported": []any{"ES256"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var keys published
	get(t, s.Clientset, "/openid/v1/jwks", &keys)
	if len(keys.Keys) != 1 || keys.Keys[0].Kid != part(t, token, 0)["kid"] || keys.Keys[0].Use != "sig" {
		t.Fatalf("the keys are %+v", keys)
	}
	k, at := keys.Keys[0], strings.LastIndex(token, ".")
	sum, signature := sha256.Sum256([]byte(token[:at])), number(t, token[at+1:]).FillBytes(make([]byte, 64))
	point := slices.Concat([]byte{4}, number(t, k.X).FillBytes(make([]byte, 32)), number(t, k.Y).FillBytes(make([]byte, 32)))
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		t.Fatal(err)
	}
	if !ecdsa.Verify(public, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		t.Errorf("%+v does not verify", k)
	}
}

// TestDiscoveryIsAuthorized: the documents are for those who may get them.
func TestDiscoveryIsAuthorized(t *testing.T) {
	t.Parallel()
	s := serve(t, serviceaccount.Tokens{})
	for _, path := range []string{"/openid/v1/jwks", "/.well-known/openid-configuration"} {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: nobody gets %s, %v", path, r.Status, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := s.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "verifier"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/openid/v1/jwks"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "verifier"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "verifier"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:default"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.account(t, "builder")
	client := s.as(t, s.token(t, "builder", authenticationv1.TokenRequestSpec{}))
	eventually(t, "the role is not in effect", func() bool {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
		return err == nil
	})
	if err := client.Discovery().RESTClient().Post().AbsPath("/openid/v1/jwks").Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("a POST: %v", err)
	}
}

// eventually waits for what takes milliseconds, on a machine that may be busy.
func eventually(t *testing.T, otherwise string, happened func() bool) {
	t.Helper()
	for begun := time.Now(); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal(otherwise)
		}
	}
}

// TestRotation: keys change while the server runs, and tokens of keys that are
// still in the file stay good.
func TestRotation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key.pem")
	_, first := newKey(t)
	_, second := newKey(t)
	write(t, file, first)
	s := serve(t, serviceaccount.Tokens{KeyFile: file})
	s.account(t, "builder")
	old := s.token(t, "builder", authenticationv1.TokenRequestSpec{})
	use := func(keys ...[]byte) (now published) {
		t.Helper()
		write(t, file, slices.Concat(keys...))
		eventually(t, "the keys are not in effect", func() bool {
			now = published{}
			get(t, s.Clientset, "/openid/v1/jwks", &now)
			return len(now.Keys) == len(keys)
		})
		return now
	}
	both := use(second, first)
	fresh := s.token(t, "builder", authenticationv1.TokenRequestSpec{})
	if got := []string{part(t, fresh, 0)["kid"].(string), part(t, old, 0)["kid"].(string)}; !slices.Equal(ids(both), got) {
		t.Errorf("%v signed, %v are published", got, ids(both))
	}
	for name, token := range map[string]string{"old": old, "fresh": fresh} {
		if _, err := s.whoami(t, token); err != nil {
			t.Errorf("%s token: %v", name, err)
		}
	}
	use(second)
	if _, err := s.whoami(t, old); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of a key that is gone: %v", err)
	}
	if _, err := s.whoami(t, fresh); err != nil {
		t.Error(err)
	}
}

// TestPublishedRSA: an RSA key is published as it is.
func TestPublishedRSA(t *testing.T) {
	t.Parallel()
	key, content := newRSAKey(t)
	file := filepath.Join(t.TempDir(), "key.pem")
	write(t, file, content)
	var keys published
	get(t, serve(t, serviceaccount.Tokens{KeyFile: file}).Clientset, "/openid/v1/jwks", &keys)
	if len(keys.Keys) != 1 || keys.Keys[0].Kty != "RSA" || keys.Keys[0].Alg != "RS256" {
		t.Fatalf("the keys are %+v", keys)
	}
	got := &rsa.PublicKey{N: number(t, keys.Keys[0].N), E: int(number(t, keys.Keys[0].E).Int64())}
	if !got.Equal(key.Public()) {
		t.Errorf("%+v is not the key", keys.Keys[0])
	}
}
