package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// header is the JOSE header of a token, RFC 7515, section 4.
type header struct {
	Algorithm string          `json:"alg"`
	KeyID     string          `json:"kid"`
	Critical  json.RawMessage `json:"crit,omitempty"`
}

// es256Half is the length of each of the two numbers of an ES256 signature.
const es256Half = 32

// sign makes a token, RFC 7515, section 7.1.
func (r *keyring) sign(c *claims) (string, error) {
	head, err := json.Marshal(header{Algorithm: r.signer.alg, KeyID: r.signer.id})
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	content := encode(head) + "." + encode(payload)
	sum := sha256.Sum256([]byte(content))
	var signature []byte
	if k, ok := r.private.(*ecdsa.PrivateKey); ok {
		signature, err = signECDSA(k, sum[:])
	} else {
		signature, err = r.private.Sign(rand.Reader, sum[:], crypto.SHA256) // PKCS #1 v1.5
	}
	if err != nil {
		return "", fmt.Errorf("sign a service account token: %w", err)
	}
	return content + "." + encode(signature), nil
}

// signECDSA signs by RFC 7518, section 3.4: two numbers of a fixed length.
func signECDSA(k *ecdsa.PrivateKey, sum []byte) ([]byte, error) {
	r, s, err := ecdsa.Sign(rand.Reader, k, sum)
	if err != nil {
		return nil, err
	}
	signature := make([]byte, 2*es256Half)
	r.FillBytes(signature[:es256Half])
	s.FillBytes(signature[es256Half:])
	return signature, nil
}

// parsed is a token that is not verified yet.
type parsed struct {
	head      header
	payload   []byte
	content   string // that is signed
	signature []byte
}

// parse reads a token, and tells whether it has the form of one. It verifies nothing.
func parse(token string) (*parsed, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, false
	}
	var decoded [3][]byte
	for n, part := range parts {
		var err error
		if decoded[n], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return nil, false
		}
	}
	t := &parsed{payload: decoded[1], content: parts[0] + "." + parts[1], signature: decoded[2]}
	if json.Unmarshal(decoded[0], &t.head) != nil {
		return nil, false
	}
	return t, true
}

// issuer is the issuer that the token names, or empty.
func (t *parsed) issuer() string {
	var c struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(t.payload, &c) != nil {
		return ""
	}
	return c.Issuer
}

// verify returns what a token says when one of the keys signed it.
func (r *keyring) verify(t *parsed) (*claims, error) {
	if len(t.head.Critical) > 0 {
		return nil, errors.New("its header has a critical extension, which is not supported")
	}
	k, ok := r.find(t.head.KeyID)
	if !ok {
		return nil, fmt.Errorf("no key has the id %.64q", t.head.KeyID)
	}
	if t.head.Algorithm != k.alg {
		return nil, fmt.Errorf("the algorithm is %.64q: want %s, the algorithm of the key", t.head.Algorithm, k.alg)
	}
	if !k.signed(t) {
		return nil, errors.New("the signature is wrong")
	}
	c := &claims{}
	if err := json.Unmarshal(t.payload, c); err != nil {
		return nil, fmt.Errorf("the claims cannot be read: %w", err)
	}
	return c, nil
}

// signed tells whether the signature is that of the key.
func (k key) signed(t *parsed) bool {
	sum := sha256.Sum256([]byte(t.content))
	switch p := k.public.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(p, crypto.SHA256, sum[:], t.signature) == nil
	case *ecdsa.PublicKey:
		if len(t.signature) != 2*es256Half {
			return false
		}
		r, s := new(big.Int).SetBytes(t.signature[:es256Half]), new(big.Int).SetBytes(t.signature[es256Half:])
		return ecdsa.Verify(p, sum[:], r, s)
	}
	return false
}
