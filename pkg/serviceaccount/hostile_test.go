package serviceaccount_test

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
)

// object is a part of a token; of changes to one, nil removes.
type object map[string]any

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// part decodes a part of a token.
func part(t *testing.T, token string, n int) object {
	t.Helper()
	content, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[n])
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(content, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// claimsOf is what a token says.
func claimsOf(t *testing.T, token string) object {
	t.Helper()
	return part(t, token, 1)
}

// forge makes a token like another one, with changes, and with a signature of
// what is signed.
func forge(t *testing.T, good string, header, claims object, sign func(content []byte) []byte) string {
	t.Helper()
	var parts [2]string
	for n, changes := range []object{header, claims} {
		o := part(t, good, n)
		maps.Copy(o, changes)
		maps.DeleteFunc(o, func(_ string, v any) bool { return v == nil })
		content, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		parts[n] = encode(content)
	}
	content := parts[0] + "." + parts[1]
	return content + "." + encode(sign([]byte(content)))
}

// es256 signs as RFC 7518, section 3.4, says.
func es256(t *testing.T, key *ecdsa.PrivateKey) func([]byte) []byte {
	return func(content []byte) []byte {
		t.Helper()
		sum := sha256.Sum256(content)
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return signature
	}
}

func hs256(secret []byte) func([]byte) []byte {
	return func(content []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(content)
		return mac.Sum(nil)
	}
}

// nested are the claims of Kubernetes, with a change.
func nested(t *testing.T, good, name string, value any) object {
	t.Helper()
	o := object(claimsOf(t, good)["kubernetes.io"].(map[string]any))
	o[name] = value
	return object{"kubernetes.io": o}
}

// TestHostile: whoever has no key, or a token for something else, gets nowhere.
// The server's key signs here too, so that each attempt is wrong in one thing.
func TestHostile(t *testing.T) {
	t.Parallel()
	key, content := newKey(t)
	stranger, _ := newKey(t)
	file := filepath.Join(t.TempDir(), "key.pem")
	write(t, file, content)
	s := serve(t, serviceaccount.Tokens{KeyFile: file})
	account := s.account(t, "builder")
	good := s.token(t, "builder", authenticationv1.TokenRequestSpec{})
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	none := func([]byte) []byte { return nil }
	ours, now := es256(t, key), time.Now().Unix()
	change := func(claims object) string { return forge(t, good, nil, claims, ours) }
	parts := strings.Split(good, ".")
	swapped := s.token(t, "builder", authenticationv1.TokenRequestSpec{Audiences: []string{"a"}})

	for name, c := range map[string]struct {
		reason string
		token  string
		err    string // in the review; empty: the token is left to others
	}{
		"alg none":           {"nobody signed", forge(t, good, object{"alg": "none"}, nil, none), `the algorithm is "none"`},
		"alg None":           {"nobody signed", forge(t, good, object{"alg": "None"}, nil, none), `the algorithm is "None"`},
		"no alg":             {"nobody signed", forge(t, good, object{"alg": nil}, nil, none), `the algorithm is ""`},
		"HS256, PEM":         {"the public key is public", forge(t, good, object{"alg": "HS256"}, nil, hs256(public)), `the algorithm is "HS256"`},
		"HS256, DER":         {"the public key is public", forge(t, good, object{"alg": "HS256"}, nil, hs256(der)), `the algorithm is "HS256"`},
		"RS256":              {"the key has one algorithm", forge(t, good, object{"alg": "RS256"}, nil, ours), `the algorithm is "RS256"`},
		"ES384":              {"the key has one algorithm", forge(t, good, object{"alg": "ES384"}, nil, ours), `the algorithm is "ES384"`},
		"no signature":       {"nobody signed", forge(t, good, nil, nil, none), "the signature is wrong"},
		"zero signature":     {"0 is no signature", forge(t, good, nil, nil, func([]byte) []byte { return make([]byte, 64) }), "the signature is wrong"},
		"ASN.1 signature":    {"JWS has another form", forge(t, good, nil, nil, func(b []byte) []byte { return asn1(t, key, b) }), "the signature is wrong"},
		"stranger":           {"the key is not ours", forge(t, good, nil, nil, es256(t, stranger)), "the signature is wrong"},
		"own key in header":  {"a token cannot bring its key", forge(t, good, object{"jwk": object{"kty": "EC"}, "jku": "https://evil"}, nil, es256(t, stranger)), "the signature is wrong"},
		"other kid":          {"no key has the id", forge(t, good, object{"kid": "other"}, nil, ours), `no key has the id "other"`},
		"no kid":             {"the key has to be named", forge(t, good, object{"kid": nil}, nil, ours), `no key has the id ""`},
		"path as kid":        {"ids are not files", forge(t, good, object{"kid": "/dev/null"}, nil, hs256(nil)), `no key has the id "/dev/null"`},
		"critical extension": {"it cannot be followed", forge(t, good, object{"crit": []string{"b64"}, "b64": false}, nil, ours), "a critical extension, which is not supported"},
		"other payload":      {"the signature is another token's", parts[0] + "." + strings.Split(swapped, ".")[1] + "." + parts[2], "the signature is wrong"},
		"truncated":          {"half a signature is none", good[:len(good)-42], "the signature is wrong"},
		"no payload":         {"it says nothing", parts[0] + ".." + parts[2], ""},
		"two parts":          {"it has no signature", parts[0] + "." + parts[1], ""},
		"four parts":         {"it is an encrypted token", good + "." + parts[2], ""},
		"padding":            {"base64url has one form here", good + "=", ""},
		"newline":            {"the decoder would skip it", parts[0] + "\n." + parts[1] + "." + parts[2], ""},
		"dots":               {"there is nothing in it", "..", ""},
		"expired":            {"its time is over", change(object{"exp": now - 1}), "it has expired"},
		"no expiry":          {"all tokens end", change(object{"exp": nil}), "it has no expiry"},
		"expiry as text":     {"it is a number", change(object{"exp": "4000000000"}), "the claims cannot be read"},
		"not yet":            {"its time is to come", change(object{"nbf": now + 3600}), "it is not valid yet"},
		"issued tomorrow":    {"nobody can have it yet", change(object{"iat": now + 86400}), "it is not valid yet"},
		"other issuer":       {"somebody else knows", change(object{"iss": "https://other.example.com"}), ""},
		"no issuer":          {"somebody else knows", change(object{"iss": nil}), ""},
		"other audience":     {"it is for another server", change(object{"aud": []string{"other"}}), "it is for"},
		"audience as text":   {"it is for another server", change(object{"aud": "other"}), "it is for"},
		"no audience":        {"it is for nobody", change(object{"aud": nil}), "it is for"},
		"other subject":      {"both have to be one", change(object{"sub": "system:serviceaccount:kube-system:root"}), "its subject is not the service account that it names"},
		"user":               {"it is no account", change(object{"sub": "system:admin"}), "its subject is not the service account that it names"},
		"other namespace":    {"both have to be one", change(nested(t, good, "namespace", "kube-system")), "its subject is not the service account that it names"},
		"other account": {
			"both have to be one", change(nested(t, good, "serviceaccount", object{"name": "root", "uid": account.UID})),
			"its subject is not the service account that it names",
		},
		"no UID":        {"an account of that name may be another one", change(nested(t, good, "serviceaccount", object{"name": "builder"})), "its subject is not the service account that it names"},
		"other UID":     {"it is an account that was", change(nested(t, good, "serviceaccount", object{"name": "builder", "uid": "1"})), "has another UID"},
		"no kubernetes": {"it is nobody's", change(object{"kubernetes.io": nil}), "its subject is not the service account that it names"},
		"secret": {
			"what it is bound to was never there", change(nested(t, good, "secret", object{"name": "a", "uid": "1"})), `secret "a" is gone`,
		},
		"pod":  {"what it is bound to was never there", change(nested(t, good, "pod", object{"name": "a", "uid": "1"})), `pod "a" is gone`},
		"node": {"what it is bound to was never there", change(nested(t, good, "node", object{"name": "a", "uid": "1"})), `node "a" is gone`},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(c.token, "\n") { // which no header can have
				if who, err := s.whoami(t, c.token); !apierrors.IsUnauthorized(err) {
					t.Errorf("%s: it logs in as %+v, %v", c.reason, who, err)
				}
			}
			want := c.err
			if want == "" {
				want = "invalid bearer token"
			}
			if r := s.review(t, c.token); r.Authenticated || r.User.Username != "" || !strings.Contains(r.Error, want) {
				t.Errorf("%s: the review says %+v, want %s", c.reason, r, want)
			}
		})
	}
	for name, token := range map[string]string{"issued": good, "changed in nothing": change(nil), "clock a little ahead": change(object{"nbf": now + 30})} {
		if _, err := s.whoami(t, token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := s.review(t, good, "other"); r.Authenticated {
		t.Errorf("for another audience the review says %+v", r)
	}
}

func asn1(t *testing.T, key *ecdsa.PrivateKey, content []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(content)
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// TestKeyOfAnotherKind: an RSA key signs as well, and its public key is no
// secret for HMAC either.
func TestKeyOfAnotherKind(t *testing.T) {
	t.Parallel()
	key, content := newRSAKey(t)
	file := filepath.Join(t.TempDir(), "key.pem")
	write(t, file, content)
	s := serve(t, serviceaccount.Tokens{KeyFile: file})
	s.account(t, "builder")
	good := s.token(t, "builder", authenticationv1.TokenRequestSpec{})
	if _, err := s.whoami(t, good); err != nil || part(t, good, 0)["alg"] != "RS256" {
		t.Errorf("a token with header %v: %v", part(t, good, 0), err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)})
	other, _ := newKey(t)
	for alg, sign := range map[string]func([]byte) []byte{"HS256": hs256(public), "ES256": es256(t, other), "RS256": es256(t, other)} {
		if _, err := s.whoami(t, forge(t, good, object{"alg": alg}, nil, sign)); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", alg, err)
		}
	}
}
