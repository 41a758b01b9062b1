package serviceaccount

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"

	"k8s.io/client-go/util/keyutil"
)

// The algorithms of RFC 7518, section 3.1, that sign tokens. The key decides
// which one verifies, never the token.
const (
	rs256 = "RS256"
	es256 = "ES256"
)

// leastBits is the size RFC 7518, section 3.3, asks of an RSA key.
const leastBits = 2048

// key is a public key, and how it is used.
type key struct {
	public crypto.PublicKey
	id     string // as in kube-apiserver: the SHA-256 of the key
	alg    string
}

// keyring is the key that signs, and all those that verify.
type keyring struct {
	source  []byte // what they were read from
	private crypto.Signer
	signer  key
	all     []key
}

// find returns the key of an id.
func (r *keyring) find(id string) (key, bool) {
	for _, k := range r.all {
		if k.id == id {
			return k, true
		}
	}
	return key{}, false
}

func newKey(public crypto.PublicKey) (key, error) {
	k := key{public: public}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < leastBits {
			return key{}, fmt.Errorf("it is an RSA key of %d bits: want %d or more", p.N.BitLen(), leastBits)
		}
		k.alg = rs256
	case *ecdsa.PublicKey:
		if p.Curve != elliptic.P256() {
			return key{}, fmt.Errorf("it is an ECDSA key of curve %s: want P-256", p.Curve.Params().Name)
		}
		k.alg = es256
	default:
		return key{}, fmt.Errorf("it is a %T: want an RSA or an ECDSA key", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(der)
	k.id = base64.RawURLEncoding.EncodeToString(sum[:])
	return k, nil
}

// parseKeys reads keys in PEM, of which the first is private and signs. Errors
// never have key material in them.
func parseKeys(content []byte) (*keyring, error) {
	r := &keyring{source: content}
	begun, read := bytes.Count(content, []byte("-----BEGIN ")), 0
	for n := 1; ; n++ {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}
		read++
		if block.Type == "EC PARAMETERS" {
			n-- // openssl writes the curve before the key
			continue
		}
		if err := r.add(block); err != nil {
			return nil, fmt.Errorf("key %d: %w", n, err)
		}
	}
	// The decoder skips what it cannot read: another key would sign, or a key
	// that must still verify would be missing.
	if read != begun {
		return nil, fmt.Errorf("only %d of %d PEM blocks can be read: one is damaged or cut off", read, begun)
	}
	if len(r.all) == 0 {
		return nil, errors.New("it has no key in PEM")
	}
	return r, nil
}

// add adds the key of a PEM block.
func (r *keyring) add(block *pem.Block) error {
	one := pem.EncodeToMemory(block)
	var public crypto.PublicKey
	var signer crypto.Signer
	if private, err := keyutil.ParsePrivateKeyPEM(one); err == nil {
		var ok bool
		if signer, ok = private.(crypto.Signer); !ok {
			return fmt.Errorf("it is a %T: want an RSA or an ECDSA key", private)
		}
		public = signer.Public()
	} else if publics, err := keyutil.ParsePublicKeysPEM(one); err == nil && len(publics) == 1 {
		public = publics[0]
	} else {
		return fmt.Errorf("a block of type %q cannot be read: want an unencrypted private or a public key", block.Type)
	}
	k, err := newKey(public)
	if err != nil {
		return err
	}
	if len(r.all) == 0 {
		if signer == nil {
			return errors.New("it is public: the first key signs and must be private")
		}
		r.private, r.signer = signer, k
	}
	if _, twice := r.find(k.id); !twice {
		r.all = append(r.all, k)
	}
	return nil
}

// jwk is a public key as in RFC 7517.
type jwk struct {
	Use       string `json:"use"`
	KeyType   string `json:"kty"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
}

func (k key) jwk() (jwk, error) {
	out := jwk{Use: "sig", ID: k.id, Algorithm: k.alg}
	encode := base64.RawURLEncoding.EncodeToString
	switch p := k.public.(type) {
	case *rsa.PublicKey:
		out.KeyType, out.N, out.E = "RSA", encode(p.N.Bytes()), encode(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := p.Bytes() // 4, X, Y
		if err != nil {
			return jwk{}, fmt.Errorf("service account key %s: %w", k.id, err)
		}
		half := (len(point) - 1) / 2
		out.KeyType, out.Curve, out.X, out.Y = "EC", "P-256", encode(point[1:1+half]), encode(point[1+half:])
	}
	return out, nil
}
