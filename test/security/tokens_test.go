package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
)

// claims are a part of a token; of changes to one, nil removes.
type claims map[string]any

// signer signs tokens as somebody who has the key, or not.
type signer struct {
	key *ecdsa.PrivateKey
	kid string
}

func newSigner(t *testing.T, kid string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{key, kid}
}

// es256 signs as RFC 7518, section 3.4, says.
func (s signer) es256(content []byte) []byte {
	digest := sha256.Sum256(content)
	x, y, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	if err != nil {
		return nil
	}
	return append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)
}

func hs256(secret []byte) func([]byte) []byte {
	return func(content []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(content)
		return mac.Sum(nil)
	}
}

func unsigned([]byte) []byte { return nil }

// publics are the forms in which the public key is public.
func (s signer) publics(t *testing.T) [][]byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	point, err := s.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{der, point, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), []byte(s.kid), {}}
}

// forge makes a token of a header and a payload with a signature.
func forge(t *testing.T, header, payload claims, sign func([]byte) []byte) string {
	t.Helper()
	var parts []string
	for _, part := range []claims{header, payload} {
		content, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(content))
	}
	content := strings.Join(parts, ".")
	return content + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(content)))
}

func changed(all, changes claims) claims {
	all = maps.Clone(all)
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// minted is what the attempts of a test forge tokens with.
type minted struct {
	signer
	issuer string
	// good is a payload that is right in all.
	good claims
}

// forgeries are attempts that are the same for the tokens of each issuer.
func forgeries(m func(t *testing.T, w *world) minted) map[string]attempt {
	all := map[string]attempt{}
	add := func(name, reason string, forged func(t *testing.T, m minted) []string) {
		all[name] = attempt{reason: reason, try: func(t *testing.T, w *world) {
			m := m(t, w)
			header := claims{"alg": "ES256", "kid": m.kid, "typ": "JWT"}
			// The attempt is wrong in one thing: without it the token is good.
			good := request{method: "GET", path: "/api", header: map[string]string{"Authorization": "Bearer " + forge(t, header, m.good, m.es256)}}
			if a := w.send(t, good); a.code != http.StatusOK && a.code != http.StatusForbidden {
				t.Fatalf("a good token: %d %s", a.code, a.body)
			}
			for _, token := range forged(t, m) {
				w.unauthorized(t, request{method: "GET", path: "/api", header: map[string]string{"Authorization": "Bearer " + token}})
			}
		}}
	}
	with := func(changes ...claims) func(*testing.T, minted) []string {
		return func(t *testing.T, m minted) (tokens []string) {
			for _, c := range changes {
				tokens = append(tokens, forge(t, claims{"alg": "ES256", "kid": m.kid}, changed(m.good, c), m.es256))
			}
			return tokens
		}
	}
	now := time.Now()
	add("expired", "a token ends", with(claims{"exp": now.Add(-time.Hour).Unix()}, claims{"exp": 0}, claims{"exp": -1}))
	add("without an end", "all tokens end", with(claims{"exp": nil}))
	add("not yet", "a token begins", with(claims{"nbf": now.Add(time.Hour).Unix()}))
	add("wrong audience", "it is for another server", with(claims{"aud": "other"}, claims{"aud": []string{"a", "b"}}, claims{"aud": nil}, claims{"aud": []string{}}, claims{"aud": ""}))
	add("wrong issuer", "nobody knows who issued it", with(claims{"iss": "https://evil.example.com"}, claims{"iss": nil}, claims{"iss": ""}, claims{"iss": "https://127.0.0.1"}))
	add("issuer almost right", "an issuer is compared as it is", func(t *testing.T, m minted) []string {
		return with(claims{"iss": m.issuer + "/"}, claims{"iss": strings.ToUpper(m.issuer)}, claims{"iss": " " + m.issuer}, claims{"iss": []string{m.issuer}})(t, m)
	})
	add("nobody's", "a token is somebody's", with(claims{"sub": nil}, claims{"sub": 1}, claims{"sub": []string{"a"}}))
	add("alg none", "nobody signed it", func(t *testing.T, m minted) (tokens []string) {
		for _, alg := range []any{"none", "None", "NONE", "nOnE", "", nil, "ES256"} {
			tokens = append(tokens, forge(t, changed(claims{"kid": m.kid}, claims{"alg": alg}), m.good, unsigned))
		}
		return tokens
	})
	add("HS256 with the public key", "the public key is no secret", func(t *testing.T, m minted) (tokens []string) {
		for _, secret := range m.publics(t) {
			tokens = append(tokens, forge(t, claims{"alg": "HS256", "kid": m.kid}, m.good, hs256(secret)))
		}
		return tokens
	})
	add("other key", "the key is not the issuer's", func(t *testing.T, m minted) (tokens []string) {
		other := newSigner(t, m.kid)
		jwk := claims{"kty": "EC", "crv": "P-256"}
		for _, header := range []claims{
			{"alg": "ES256", "kid": m.kid},
			{"alg": "ES256"},
			{"alg": "ES256", "kid": "../../../../dev/null"},
			{"alg": "ES256", "kid": m.kid, "jwk": jwk},
			{"alg": "ES256", "kid": m.kid, "jku": "https://evil.example.com/keys", "x5u": "https://evil.example.com/cert"},
		} {
			tokens = append(tokens, forge(t, header, m.good, other.es256))
		}
		return tokens
	})
	add("zero signature", "r and s are not 0 (CVE-2022-21449)", func(t *testing.T, m minted) []string {
		return []string{forge(t, claims{"alg": "ES256", "kid": m.kid}, m.good, func([]byte) []byte { return make([]byte, 64) })}
	})
	add("signature of other claims", "claims are signed", func(t *testing.T, m minted) []string {
		good := strings.Split(forge(t, claims{"alg": "ES256", "kid": m.kid}, m.good, m.es256), ".")
		other := strings.Split(forge(t, claims{"alg": "ES256", "kid": m.kid}, changed(m.good, claims{"sub": "root"}), unsigned), ".")
		return []string{good[0] + "." + other[1] + "." + good[2], good[0] + "." + good[1], good[0] + "." + good[1] + ".", "." + good[1] + "." + good[2]}
	})
	add("key for something else", "an algorithm goes with its key", func(t *testing.T, m minted) (tokens []string) {
		for _, alg := range []string{"ES384", "ES512", "RS256", "PS256", "EdDSA", "HS512", "A128KW", "dir"} {
			tokens = append(tokens, forge(t, claims{"alg": alg, "kid": m.kid}, m.good, m.es256))
		}
		return tokens
	})
	add("critical extension", "what is not understood is not believed", func(t *testing.T, m minted) []string {
		return []string{forge(t, claims{"alg": "ES256", "kid": m.kid, "crit": []string{"b64"}, "b64": false}, m.good, m.es256)}
	})
	return all
}

// TestTokens: what issuers did not sign for this server and for now is no
// credential.
func TestTokens(t *testing.T) {
	t.Parallel()
	m := newOIDC(t)
	w := serve(t, authn.JWT{Config: m.config})
	// The server asks the issuer for its keys in the background.
	good := forge(t, claims{"alg": "ES256", "kid": m.kid}, m.good, m.es256)
	w.await(t, request{method: "GET", path: "/api", header: map[string]string{"Authorization": "Bearer " + good}}, http.StatusOK)
	all := forgeries(func(*testing.T, *world) minted { return m.minted })
	maps.Copy(all, particular(m))
	attack(t, w, all)
}

func tokenAttempts() map[string]attempt {
	all := forgeries(nil)
	maps.Copy(all, particular(oidc{}))
	return all
}

// particular are attempts with tokens that the issuer signed.
func particular(m oidc) map[string]attempt {
	send := func(t *testing.T, w *world, changes claims, r request) answer {
		t.Helper()
		token := forge(t, claims{"alg": "ES256", "kid": m.kid}, changed(m.good, changes), m.es256)
		r.header = map[string]string{"Authorization": "Bearer " + token}
		return w.send(t, r)
	}
	return map[string]attempt{
		"names of the system": {reason: "names of an issuer have its prefix", try: func(t *testing.T, w *world) {
			for _, changes := range []claims{
				{"sub": "sailplane-admin"},
				{"sub": "system:admin"},
				{"sub": "system:serviceaccount:vault:keeper"},
				{"sub": "chief"},
				{"sub": "system:apiserver"},
				{"groups": []string{"system:masters"}},
				{"groups": "system:masters"},
				{"groups": []string{"system:masters", ""}},
			} {
				if a := send(t, w, changes, request{method: "GET", path: crown}); a.code != http.StatusForbidden && a.code != http.StatusUnauthorized {
					t.Errorf("%v: %d %s", changes, a.code, a.body)
				}
			}
		}},
		"claims that are too much": {reason: "a rule of the configuration says no", try: func(t *testing.T, w *world) {
			if a := send(t, w, claims{"hired": false}, request{method: "GET", path: "/api"}); a.code != http.StatusUnauthorized {
				t.Errorf("%d %s", a.code, a.body)
			}
			if a := send(t, w, claims{"hired": nil}, request{method: "GET", path: "/api"}); a.code != http.StatusUnauthorized {
				t.Errorf("%d %s", a.code, a.body)
			}
		}},
	}
}

type oidc struct {
	minted
	config *apiserver.AuthenticationConfiguration
}

// newOIDC is an OpenID Connect issuer with one key.
func newOIDC(t *testing.T) oidc {
	t.Helper()
	s := newSigner(t, "one")
	point := s.publics(t)[1] // 4, x, y
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	answer := func(path string, content any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(content)
		})
	}
	encode := base64.RawURLEncoding.EncodeToString
	answer("/keys", claims{"keys": []any{claims{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": s.kid, "x": encode(point[1:33]), "y": encode(point[33:]),
	}}})
	answer("/.well-known/openid-configuration", claims{
		"issuer": server.URL, "jwks_uri": server.URL + "/keys", "authorization_endpoint": server.URL + "/login",
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
	})
	prefix := "sso:"
	return oidc{
		minted: minted{signer: s, issuer: server.URL, good: claims{
			"iss": server.URL, "aud": "sailplane", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"growers"}, "hired": true,
		}},
		config: &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{{
			Issuer: apiserver.Issuer{
				URL: server.URL, Audiences: []string{"sailplane"},
				CertificateAuthority: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
			},
			ClaimValidationRules: []apiserver.ClaimValidationRule{{Claim: "", Expression: "claims.hired == true", Message: "only who is hired"}},
			ClaimMappings: apiserver.ClaimMappings{
				Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix},
				Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &prefix},
			},
		}}},
	}
}

// TestAccounts: a token of a service account ends with its time, its account,
// and what it is bound to, and nobody else makes one.
func TestAccounts(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "")
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	w := serve(t, serviceaccount.Tokens{KeyFile: file})
	all := forgeries(func(t *testing.T, w *world) minted { return mintedOf(t, w, s) })
	maps.Copy(all, revocations())
	attack(t, w, all)
}

func accountAttempts() map[string]attempt {
	all := forgeries(nil)
	maps.Copy(all, revocations())
	return all
}

// mintedOf is what the account "keeper" has, with the server's own key.
func mintedOf(t *testing.T, w *world, s signer) minted {
	t.Helper()
	token := w.token(t, "vault", "keeper", "")
	var header, payload claims
	for i, into := range []*claims{&header, &payload} {
		content, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(content, into); err != nil {
			t.Fatal(err)
		}
	}
	s.kid, _ = header["kid"].(string)
	issuer, _ := payload["iss"].(string)
	return minted{signer: s, issuer: issuer, good: payload}
}

// token asks for one, with more of the specification as JSON.
func (w *world) token(t *testing.T, namespace, account, spec string) string {
	t.Helper()
	a := w.must(t, request{
		method: "POST", path: "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + account + "/token",
		body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{` + spec + `}}`,
	}, http.StatusCreated)
	var got struct{ Status struct{ Token string } }
	if a.into(t, &got); got.Status.Token == "" {
		t.Fatalf("no token: %s", a.body)
	}
	return got.Status.Token
}

func revocations() map[string]attempt {
	const accounts = vault + "/serviceaccounts"
	account := func(name string) string {
		return `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"` + name + `"}}`
	}
	call := func(t *testing.T, w *world, token string) int {
		t.Helper()
		return w.send(t, request{method: "GET", path: "/api", header: map[string]string{"Authorization": "Bearer " + token}}).code
	}
	return map[string]attempt{
		"account that is gone": {reason: "a token ends with its account at once, and with one made again", try: func(t *testing.T, w *world) {
			w.must(t, request{method: "POST", path: accounts, body: account("gone")}, http.StatusCreated)
			token := w.token(t, "vault", "gone", "")
			if code := call(t, w, token); code == http.StatusUnauthorized {
				t.Fatalf("a good token: %d", code)
			}
			w.must(t, request{method: "DELETE", path: accounts + "/gone"}, http.StatusOK)
			if code := call(t, w, token); code != http.StatusUnauthorized {
				t.Errorf("its account is gone: %d", code)
			}
			w.must(t, request{method: "POST", path: accounts, body: account("gone")}, http.StatusCreated)
			if code := call(t, w, token); code != http.StatusUnauthorized {
				t.Errorf("its account was made again: %d", code)
			}
		}},
		"bound object that is gone": {reason: "a token ends with what it is bound to at once, and with one made again", try: func(t *testing.T, w *world) {
			secret := request{method: "POST", path: tenant + "/secrets", body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bound"}}`}
			w.must(t, secret, http.StatusCreated)
			token := w.token(t, "tenant", "keeper", `"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"bound"}`)
			if code := call(t, w, token); code == http.StatusUnauthorized {
				t.Fatalf("a good token: %d", code)
			}
			w.must(t, request{method: "DELETE", path: tenant + "/secrets/bound"}, http.StatusOK)
			if code := call(t, w, token); code != http.StatusUnauthorized {
				t.Errorf("what it is bound to is gone: %d", code)
			}
			w.must(t, secret, http.StatusCreated)
			if code := call(t, w, token); code != http.StatusUnauthorized {
				t.Errorf("what it is bound to was made again: %d", code)
			}
		}},
		"token for another audience": {reason: "a token for others does not log in here, nor get another", try: func(t *testing.T, w *world) {
			token := w.token(t, "vault", "keeper", `"audiences":["other"]`)
			w.unauthorized(t, request{method: "GET", path: "/api", header: map[string]string{"Authorization": "Bearer " + token}})
			w.unauthorized(t, request{method: "POST", path: accounts + "/keeper/token", header: map[string]string{"Authorization": "Bearer " + token}, body: "{}"})
		}},
		"token of another server": {reason: "each server has its own keys, also where the issuer has the same name", try: func(t *testing.T, w *world) {
			other := serve(t, serviceaccount.Tokens{})
			token := other.token(t, "vault", "keeper", "")
			if code := call(t, other, token); code == http.StatusUnauthorized {
				t.Fatalf("a good token: %d", code)
			}
			if code := call(t, w, token); code != http.StatusUnauthorized {
				t.Errorf("it logs in: %d", code)
			}
		}},
		"endless token": {reason: "what is asked for has bounds", try: func(t *testing.T, w *world) {
			for _, seconds := range []string{"0", "-1", "599", "4294967297", "9223372036854775807"} {
				a := w.send(t, request{
					as: admin, method: "POST", path: accounts + "/keeper/token",
					body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":` + seconds + `}}`,
				})
				if a.code != http.StatusUnprocessableEntity {
					t.Errorf("%s: %d %s", seconds, a.code, short(a.body))
				}
			}
		}},
		"token for a century": {reason: "a token that somebody keeps ends the next day", try: func(t *testing.T, w *world) {
			a := w.must(t, request{
				method: "POST", path: accounts + "/keeper/token",
				body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":4294967296}}`,
			}, http.StatusCreated)
			var got struct {
				Status struct{ ExpirationTimestamp time.Time }
			}
			if a.into(t, &got); got.Status.ExpirationTimestamp.After(time.Now().Add(25 * time.Hour)) {
				t.Errorf("it lasts until %v", got.Status.ExpirationTimestamp)
			}
			if warned := a.header.Get("Warning"); !strings.Contains(warned, "shortened to 86400 seconds") {
				t.Errorf("who asks is not told: %q", warned)
			}
		}},
		"token in the audit log": {reason: "tokens are not recorded", try: func(t *testing.T, w *world) {
			token := w.token(t, "vault", "keeper", "")
			content, err := os.ReadFile(w.audit)
			if err != nil || len(content) == 0 || strings.Contains(string(content), strings.Split(token, ".")[2]) {
				t.Errorf("the log has %d bytes and may have the token: %v", len(content), err)
			}
		}},
	}
}
