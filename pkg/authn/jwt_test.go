package authn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// claims are those of a token, or changes of them: nil removes one.
type claims map[string]any

// issuer is an OpenID Connect issuer with one key.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	answer := func(content any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(content)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/keys", answer(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "one", "x": base64url(public[1:33]), "y": base64url(public[33:]),
	}}}))
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		answer(map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/login",
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})(w, r)
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

// newAbsent is an issuer whose address is one at which nothing listens. The port
// of a server that was closed may soon be that of another.
func newAbsent(t *testing.T) *issuer {
	t.Helper()
	i := newIssuer(t)
	i.URL = "https://127.0.0.1:1"
	return i
}

// answers waits until a server knows the keys of an issuer: it may have started
// without.
func (i *issuer) answers(t *testing.T, url, name string) {
	t.Helper()
	eventually(t, "a good token", url, call{token: i.sign(t, nil)}, named(name))
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// payload are the claims of a good token, but for some changes.
func (i *issuer) payload(changes claims) claims {
	all := claims{
		"iss": i.URL, "aud": "apples", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(),
		"email": "ann@example.com", "email_verified": true, "groups": []string{"growers"}, "hired": true,
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// sign makes a token with an ES256 signature, RFC 7518 section 3.4.
func (i *issuer) sign(t *testing.T, changes claims) string {
	t.Helper()
	body := encode(t, claims{"alg": "ES256", "kid": "one", "typ": "JWT"}) + "." + encode(t, i.payload(changes))
	digest := sha256.Sum256([]byte(body))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return body + "." + base64url(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func encode(t *testing.T, content claims) string {
	t.Helper()
	b, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return base64url(b)
}

// jwtConfig is a configuration of issuers, as YAML.
func jwtConfig(issuers ...*issuer) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n")
	for n, i := range issuers {
		fmt.Fprintf(&b, `- issuer:
    url: %s
    audiences: [apples, pears]
    audienceMatchPolicy: MatchAny
    certificateAuthority: |
      %s
  claimValidationRules:
  - expression: 'claims.hired == true'
    message: only who is hired
  claimMappings:
    username: {expression: '"issuer%d:" + claims.sub'}
    groups: {claim: groups, prefix: "oidc:"}
    uid: {claim: email}
    extra:
    - {key: example.com/issuer, valueExpression: claims.iss}
  userValidationRules:
  - expression: "!user.username.endsWith(':root')"
    message: root comes another way
`, i.URL, strings.ReplaceAll(string(pemOf(i.Server)), "\n", "\n      "), n+1)
	}
	return []byte(b.String())
}

func configFile(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	replace(t, file, content, 0o644)
	return file
}

func TestJWT(t *testing.T) {
	t.Parallel()
	one, two, stranger := newIssuer(t), newIssuer(t), newIssuer(t)
	url := serve(t, authn.JWT{ConfigFile: configFile(t, jwtConfig(one, two))}, authn.Anonymous{Paths: []string{"/version"}})
	one.answers(t, url, "issuer1:ann")
	two.answers(t, url, "issuer2:ann")

	got := call{token: one.sign(t, nil)}.do(t, url)
	got.Header = nil
	delete(got.Extra, "authentication.kubernetes.io/credential-id")
	want := who{
		Name: "issuer1:ann", UID: "ann@example.com", Groups: []string{"oidc:growers", "system:authenticated"},
		Extra: map[string][]string{"example.com/issuer": {one.URL}}, status: 200,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(who{})); diff != "" {
		t.Errorf("a good token (-want +got):\n%s", diff)
	}
	if got := (call{token: two.sign(t, claims{"aud": []string{"x", "pears"}})}).do(t, url); !named("issuer2:ann")(got) {
		t.Errorf("another issuer's token for another audience: %d, %+v", got.status, got)
	}

	forged := strings.Split(one.sign(t, nil), ".")
	forged[1] = encode(t, one.payload(claims{"sub": "bob"}))
	unsigned := encode(t, claims{"alg": "none"}) + "." + encode(t, one.payload(nil)) + "."
	symmetric := encode(t, claims{"alg": "HS256", "kid": "one"}) + "." + encode(t, one.payload(nil)) + "." + base64url([]byte("0123456789abcdef0123456789abcdef"))
	bad := map[string]struct{ reason, token string }{
		"expired":   {"a token ends", one.sign(t, claims{"exp": time.Now().Add(-time.Minute).Unix()})},
		"eternal":   {"a token has to end", one.sign(t, claims{"exp": nil})},
		"too early": {"a token begins", one.sign(t, claims{"nbf": time.Now().Add(time.Hour).Unix()})},
		"audience":  {"one for another server", one.sign(t, claims{"aud": "plums"})},
		"nobody's":  {"one for no server", one.sign(t, claims{"aud": nil})},
		"issuer":    {"one of an issuer that is not configured", stranger.sign(t, nil)},
		"pretender": {"one that says it is of another issuer", stranger.sign(t, claims{"iss": one.URL})},
		"crossed":   {"one issuer signs for the other", two.sign(t, claims{"iss": one.URL})},
		"none":      {"alg none is no signature", unsigned},
		"symmetric": {"the public key is no secret", symmetric},
		"forged":    {"claims are signed", strings.Join(forged, ".")},
		"cut":       {"not a token", strings.Join(forged[:2], ".")},
		"claims":    {"a claim rule says no", one.sign(t, claims{"hired": false})},
		"no claim":  {"a claim rule cannot be evaluated", one.sign(t, claims{"hired": nil})},
		"user":      {"a user rule says no", one.sign(t, claims{"sub": "root"})},
		"no user":   {"nobody", one.sign(t, claims{"sub": nil})},
	}
	for name, tc := range bad {
		if got := (call{token: tc.token}).do(t, url); !refused(got) {
			t.Errorf("%s: %s: %d, %+v", name, tc.reason, got.status, got)
		}
	}
}

func TestJWTIsReloaded(t *testing.T) {
	t.Parallel()
	one, two, gone := newIssuer(t), newIssuer(t), newAbsent(t)
	file := configFile(t, jwtConfig(one))
	url := serve(t, authn.JWT{ConfigFile: file})
	ann, bob := call{token: one.sign(t, nil)}, call{token: two.sign(t, claims{"sub": "bob"})}
	one.answers(t, url, "issuer1:ann")
	if got := bob.do(t, url); !refused(got) {
		t.Errorf("an issuer that is not in it: %d", got.status)
	}
	for reason, content := range map[string][]byte{
		"not a configuration": []byte("jwt: ["),
		"not a valid one":     []byte(strings.ReplaceAll(string(jwtConfig(one)), "claims.hired == true", "claims.hired =")),
		"a silent issuer":     jwtConfig(gone, two),
	} {
		replace(t, file, content, 0o644)
		<-time.After(1500 * time.Millisecond) // it has been looked at by then
		if got := ann.do(t, url); !named("issuer1:ann")(got) {
			t.Errorf("%s changes nothing: %d", reason, got.status)
		}
	}
	replace(t, file, jwtConfig(one, two), 0o644)
	eventually(t, "a second issuer", url, bob, named("issuer2:bob"))
	replace(t, file, jwtConfig(two), 0o644)
	eventually(t, "an issuer that is gone", url, ann, refused)
	if got := bob.do(t, url); !named("issuer1:bob")(got) {
		t.Errorf("the one that stays: %d, %q", got.status, got.Name)
	}
}

// TestJWTReads: the configuration may be a section of a file of the program.
func TestJWTReads(t *testing.T) {
	t.Parallel()
	one, two := newIssuer(t), newIssuer(t)
	file := configFile(t, jwtConfig(one))
	read := func(name string) ([]byte, error) { return os.ReadFile(strings.TrimSuffix(name, "#authentication")) }
	url := serve(t, authn.JWT{ConfigFile: file + "#authentication", Read: read})
	one.answers(t, url, "issuer1:ann")
	replace(t, file, jwtConfig(two), 0o644)
	two.answers(t, url, "issuer1:ann")
	if got := (call{token: one.sign(t, nil)}).do(t, url); !refused(got) {
		t.Errorf("an issuer that is gone: %d, %+v", got.status, got)
	}

	broken := func(string) ([]byte, error) { return nil, errors.New("the section is gone") }
	if err := buildError(t, authn.JWT{ConfigFile: file, Read: broken}); err == nil || !strings.Contains(err.Error(), "the section is gone") {
		t.Errorf("without the section: %v", err)
	}
}

// TestJWTConfig is the configuration as a value.
func TestJWTConfig(t *testing.T) {
	t.Parallel()
	one := newIssuer(t)
	prefix := ""
	config := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{{
		Issuer:        apiserver.Issuer{URL: one.URL, Audiences: []string{"apples"}, CertificateAuthority: string(pemOf(one.Server))},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix}},
	}}}
	url := serve(t, authn.JWT{Config: config}, authn.Tokens{File: tokenFile(t, "good,bob,\n")})
	one.answers(t, url, "ann")
	if got := (call{token: "good"}).do(t, url); !named("bob")(got) {
		t.Errorf("a token of another part: %d", got.status)
	}
	if got := (call{token: one.sign(t, claims{"aud": "pears"})}).do(t, url); !refused(got) {
		t.Errorf("a token for another server: %d", got.status)
	}
}

// TestJWTStartsWithoutIssuer: a server must not need the one that its own
// users log in with, which may run on it.
func TestJWTStartsWithoutIssuer(t *testing.T) {
	t.Parallel()
	gone := newAbsent(t)
	url := serve(t, authn.JWT{ConfigFile: configFile(t, jwtConfig(gone))})
	if got := (call{token: gone.sign(t, nil)}).do(t, url); !refused(got) {
		t.Errorf("a token of an issuer that does not answer: %d", got.status)
	}
}

func TestJWTFields(t *testing.T) {
	t.Parallel()
	withIssuer := func(change func(*apiserver.AuthenticationConfiguration)) authn.JWT {
		prefix := ""
		c := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{{
			Issuer:        apiserver.Issuer{URL: "https://example.com", Audiences: []string{"apples"}},
			ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix}},
		}}}
		change(c)
		return authn.JWT{Config: c}
	}
	cases := map[string]struct {
		reason string
		part   controlplane.Part
		want   string
	}{
		"neither": {"nobody to ask", authn.JWT{}, "fields ConfigFile and Config: set exactly one"},
		"both": {
			reason: "one would be ignored",
			part:   authn.JWT{ConfigFile: "x", Config: &apiserver.AuthenticationConfiguration{}},
			want:   "fields ConfigFile and Config: set exactly one",
		},
		"read": {
			reason: "it would not be called",
			part:   authn.JWT{Config: &apiserver.AuthenticationConfiguration{}, Read: os.ReadFile},
			want:   "field Read: is how ConfigFile is read, which is empty: set both",
		},
		"http": {
			reason: "keys come over TLS",
			part:   withIssuer(func(c *apiserver.AuthenticationConfiguration) { c.JWT[0].Issuer.URL = "http://example.com" }),
			want:   `part "authn.JWT": field Config: jwt[0].issuer.url: Invalid value: "http://example.com": URL scheme must be https`,
		},
		"audiences": {
			reason: "tokens are for somebody",
			part:   withIssuer(func(c *apiserver.AuthenticationConfiguration) { c.JWT[0].Issuer.Audiences = nil }),
			want:   "jwt[0].issuer.audiences: Required value",
		},
		"twice": {
			reason: "one of both would win",
			part:   withIssuer(func(c *apiserver.AuthenticationConfiguration) { c.JWT = append(c.JWT, c.JWT[0]) }),
			want:   "jwt[1].issuer.url: Duplicate value",
		},
		"rule": {
			reason: "not CEL",
			part: withIssuer(func(c *apiserver.AuthenticationConfiguration) {
				c.JWT[0].UserValidationRules = []apiserver.UserValidationRule{{Expression: "user.username =="}}
			}),
			want: "jwt[0].userValidationRules[0].expression: Invalid value",
		},
		"anonymous": {
			reason: "another part has it",
			part: withIssuer(func(c *apiserver.AuthenticationConfiguration) {
				c.Anonymous = &apiserver.AnonymousAuthConfig{Enabled: true}
			}),
			want: "anonymous: Forbidden: list the paths in authn.Anonymous instead",
		},
		"egress": {
			reason: "there is no such thing",
			part: withIssuer(func(c *apiserver.AuthenticationConfiguration) {
				c.JWT[0].Issuer.EgressSelectorType = apiserver.EgressSelectorCluster
			}),
			want: "jwt[0].issuer.egressSelectorType: Forbidden: this server has no egress selectors",
		},
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
	files := map[string]struct{ reason, content, want string }{
		"kind":    {"another configuration", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n", "found kind AuthorizationConfiguration"},
		"version": {"no version has it", "apiVersion: apiserver.config.k8s.io/v9\nkind: AuthenticationConfiguration\n", "no kind"},
		"field":   {"a field that is misspelt", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwts: []\n", `unknown field "jwts"`},
		"rules":   {"a value that is not valid", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{}]\n", "jwt[0].issuer.url: Required value"},
	}
	for name, tc := range files {
		file := configFile(t, []byte(tc.content))
		err := buildError(t, authn.JWT{ConfigFile: file})
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %s: %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}
