package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

func TestRevoke(t *testing.T) {
	t.Parallel()
	dir := Dir(t.TempDir())
	if err := dir.Revoke(t.Context(), big.NewInt(1)); !errors.Is(err, ErrMissing) {
		t.Fatalf("a folder without an authority: %v", err)
	}
	before := mustLoad(t, string(dir), Request{})
	ann, err := dir.Issue(t.Context(), Request{User: "ann", Lifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	bob, err := dir.Issue(t.Context(), Request{User: "bob", Lifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	issued, err := dir.Issued()
	if err != nil || len(issued) != 2 || issued[0].Subject.CommonName != "ann" || issued[1].Subject.CommonName != "bob" {
		t.Fatalf("issued: %v, %v", issued, err)
	}
	state, err := dir.State()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // once more changes nothing
		if err := dir.Revoke(t.Context(), issued[0].SerialNumber); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := dir.State(); err != nil || bytes.Equal(now, state) {
		t.Errorf("servers do not see it: %v", err)
	}
	admin := mustCert(t, before.AdminCert)
	if err := dir.Revoke(t.Context(), admin.SerialNumber); err != nil {
		t.Fatal(err)
	}
	revoked, err := dir.Revoked()
	if err != nil {
		t.Fatal(err)
	}
	if !revoked.Has(mustCert(t, ann.AdminCert)) || revoked.Has(mustCert(t, bob.AdminCert)) || !revoked.Has(admin) {
		t.Errorf("revoked: %v", revoked)
	}
	lists, err := ParseLists(mustLoad(t, string(dir), Request{}).Revoked)
	if err != nil || len(lists) != 1 || lists[0].Number.Int64() != 2 {
		t.Errorf("the list was signed again: %d lists, %v", len(lists), err)
	}
	after := mustLoad(t, string(dir), Request{})
	if bytes.Equal(after.AdminCert, before.AdminCert) || revoked.Has(mustCert(t, after.AdminCert)) {
		t.Error("an administrator whose certificate was revoked has another")
	}
	if !bytes.Equal(after.ServerCert, before.ServerCert) {
		t.Error("the serving certificate stays")
	}
	other := mustLoad(t, "", Request{})
	for name, c := range map[string]struct {
		cert []byte
		want bool
	}{"issued": {bob.AdminCert, true}, "the administrator's": {after.AdminCert, true}, "of another authority": {other.AdminCert, false}} {
		if signed, err := dir.Signed(mustCert(t, c.cert)); err != nil || signed != c.want {
			t.Errorf("%s: signed is %v, %v", name, signed, err)
		}
	}
	if revoked, err := RevokedBy(lists, certsOf(t, other.CA)); err != nil || len(revoked) > 0 {
		t.Errorf("the list says nothing of other authorities: %v, %v", revoked, err)
	}
}

// TestRevokedForged: a list that the authority did not sign is an error, not no list.
func TestRevokedForged(t *testing.T) {
	t.Parallel()
	dir := Dir(t.TempDir())
	mustLoad(t, string(dir), Request{})
	if err := dir.Revoke(t.Context(), big.NewInt(7)); err != nil {
		t.Fatal(err)
	}
	lists, err := ParseLists(mustRead(t, string(dir))[revokedFile])
	if err != nil {
		t.Fatal(err)
	}
	lists[0].Signature[len(lists[0].Signature)-1] ^= 1
	if _, err := RevokedBy(lists, certsOf(t, mustRead(t, string(dir))[caCert])); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the signature is wrong: %v", err)
	}
	mustWrite(t, []byte("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"), filepath.Join(string(dir), revokedFile))
	if _, err := dir.Load(t.Context(), Request{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the file is no list: %v", err)
	}
}

func certsOf(t *testing.T, content []byte) []*x509.Certificate {
	t.Helper()
	certs, err := certutil.ParseCertsPEM(content)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// TestRevokedByOthers: a list that is of none of the authorities does not take back what
// others revoke.
func TestRevokedByOthers(t *testing.T) {
	t.Parallel()
	authority := func(name string) (*x509.Certificate, crypto.Signer) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	list := func(ca *x509.Certificate, key crypto.Signer) *x509.RevocationList {
		der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
			Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(7), RevocationTime: time.Now()}},
		}, ca, key)
		if err != nil {
			t.Fatal(err)
		}
		l, err := x509.ParseRevocationList(der)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, oneKey := authority("one")
	two, twoKey := authority("two")
	again, _ := authority("two")
	again.SubjectKeyId = nil // as of programs that name no keys
	for name, authorities := range map[string][]*x509.Certificate{"first": {one, again}, "last": {again, one}} {
		revoked, err := RevokedBy([]*x509.RevocationList{list(two, twoKey), list(one, oneKey)}, authorities)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: the list of another key: %v", name, err)
		}
		if !revoked.Has(&x509.Certificate{RawIssuer: one.RawSubject, SerialNumber: big.NewInt(7)}) {
			t.Errorf("%s: what the other authority revoked is forgotten", name)
		}
	}
}
