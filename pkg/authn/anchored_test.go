package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// sign makes an authority that p signs; without p it signs itself.
func (p *pair) sign(t *testing.T, name string) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	parent := &pair{template, key}
	if p != nil {
		parent = p
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{cert, key}
}

func TestAnchored(t *testing.T) {
	t.Parallel()
	var none *pair
	root, other := none.sign(t, "root"), none.sign(t, "other")
	one := root.sign(t, "one")
	two := one.sign(t, "two")
	leaf := two.sign(t, "leaf")
	forged := none.sign(t, "root") // has the name of the authority
	forgedLeaf := forged.sign(t, "leaf")
	cases := map[string]struct {
		reason string
		chain  []*pair
		want   int // how many certificates are left; 0: refused
	}{
		"direct":       {"an authority signed it", []*pair{one}, 1},
		"chain":        {"an authority signed it through others", []*pair{leaf, two, one}, 3},
		"any order":    {"clients send chains in any order", []*pair{leaf, one, two}, 3},
		"with root":    {"many clients send the authority, too", []*pair{leaf, two, one, root}, 4},
		"with a guest": {"what leads to no authority is left out", []*pair{leaf, two, other, one}, 3},
		"twice":        {"a certificate may be there twice", []*pair{leaf, two, two, one}, 4},
		"itself":       {"an authority may be a client", []*pair{root}, 1},
		"gap":          {"a certificate in between is missing", []*pair{leaf, one}, 0},
		"stranger":     {"no authority signed it", []*pair{other.sign(t, "leaf"), other}, 0},
		"name":         {"the name of an authority is no signature", []*pair{forgedLeaf, forged}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var chain []*x509.Certificate
			for _, p := range tc.chain {
				chain = append(chain, p.cert)
			}
			got, err := anchored(chain, []*x509.Certificate{root.cert})
			if len(got) != tc.want || (err != nil) != (tc.want == 0) {
				t.Fatalf("%s: %d certificates, %v; want %d", tc.reason, len(got), err, tc.want)
			}
			if len(got) > 0 && got[0] != chain[0] {
				t.Error("the client's own certificate stays the first")
			}
		})
	}
}
