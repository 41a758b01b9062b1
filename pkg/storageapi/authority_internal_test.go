package storageapi

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certutil "k8s.io/client-go/util/cert"
)

// epoch is when the authorities of tests are made.
func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func wardle() tenantID {
	return tenantID{name: "flunders", uid: "8c8f3ab5-4d5e-4f4b-9d3b-0d3b1f1f7a11"}
}

func newTestAuthority(t testing.TB) *authority {
	t.Helper()
	a, err := newAuthority(epoch())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// parsed are the certificates in PEM.
func parsed(t testing.TB, content []byte) []*x509.Certificate {
	t.Helper()
	certs, err := certutil.ParseCertsPEM(content)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// leaf is a certificate of a tenant with a change, for a key, signed by another.
func leaf(
	t testing.TB, key crypto.Signer, parent *x509.Certificate, signer crypto.Signer, change func(*x509.Certificate),
) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: wardle().name}, URIs: wardle().uris(),
		NotBefore: epoch(), NotAfter: epoch().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestSign: a tenant's certificate names it to servers that have the authority, also one that was
// kept, among others.
func TestSign(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	certPEM, keyPEM, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := parseAuthority(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []tenantID{wardle(), {"a", "b c&uid=d%/?"}} {
		cert, key, err := kept.sign(id, time.Hour, epoch())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			t.Error(err)
		}
		certs := parsed(t, cert)
		got, err := identify(certs, []*x509.Certificate{newTestAuthority(t).cert, a.cert}, epoch().Add(time.Minute))
		if err != nil || got != id {
			t.Errorf("%v is %v, %v", id, got, err)
		}
		if got := certs[0]; !got.NotBefore.Equal(epoch().Add(-5*time.Minute)) || !got.NotAfter.Equal(epoch().Add(time.Hour)) {
			t.Errorf("valid from %v to %v", got.NotBefore, got.NotAfter)
		}
	}
	end := a.cert.NotAfter
	cert, _, err := a.sign(wardle(), time.Hour, end.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if got := parsed(t, cert)[0].NotAfter; !got.Equal(end) {
		t.Errorf("the certificate ends at %v, the authority at %v", got, end)
	}
	if _, _, err := a.sign(wardle(), time.Hour, end); err == nil || !strings.Contains(err.Error(), "ended on 2035-12-31") {
		t.Errorf("after the end: %v", err)
	}
	for _, id := range []tenantID{{}, {name: "a"}, {uid: "a"}, {"a.b", "c"}, {"a/b", "c"}} {
		if _, _, err := a.sign(id, time.Hour, epoch()); err == nil {
			t.Errorf("%+v has a certificate", id)
		}
	}
}

// TestIdentify: nobody is a tenant without a certificate that the authority signed for it alone, for
// clients alone.
func TestIdentify(t *testing.T) {
	t.Parallel()
	a, other := newTestAuthority(t), newTestAuthority(t)
	key := newKey(t)
	signed := func(change func(*x509.Certificate)) []*x509.Certificate {
		return []*x509.Certificate{leaf(t, key, a.cert, a.key, change)}
	}
	named := func(uris ...string) []*x509.Certificate {
		return signed(func(c *x509.Certificate) {
			c.URIs = nil
			for _, text := range uris {
				u, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		})
	}
	// A tenant signs with the key of its certificate, once as what it is and once as a made-up authority.
	tenantPEM, tenantKeyPEM, err := a.sign(wardle(), time.Hour, epoch())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(tenantPEM, tenantKeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	tenant := parsed(t, tenantPEM)[0]
	asAuthority := leaf(t, key, a.cert, a.key, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.URIs = true, x509.KeyUsageCertSign, nil
	})
	byTenant := leaf(t, key, tenant, pair.PrivateKey.(crypto.Signer), func(c *x509.Certificate) { c.URIs = tenantID{"other", "uid"}.uris() })
	forged := &x509.Certificate{Subject: a.cert.Subject, SubjectKeyId: a.cert.SubjectKeyId}
	cases := map[string]struct {
		certs []*x509.Certificate
		later time.Duration
		want  string // part of the error; empty: it is the tenant
	}{
		"good":                    {certs: signed(func(*x509.Certificate) {})},
		"at its end":              {certs: signed(func(*x509.Certificate) {}), later: time.Hour},
		"none":                    {want: "no certificate"},
		"of another authority":    {certs: []*x509.Certificate{leaf(t, key, other.cert, other.key, func(*x509.Certificate) {})}, want: "unknown authority"},
		"of the authority's name": {certs: []*x509.Certificate{leaf(t, key, forged, key, func(*x509.Certificate) {})}, want: "unknown authority"},
		"of a tenant":             {certs: []*x509.Certificate{byTenant, tenant}, want: "unknown authority"},
		"below an authority that was signed": {
			certs: []*x509.Certificate{leaf(t, newKey(t), asAuthority, key, func(*x509.Certificate) {}), asAuthority}, want: "unknown authority",
		},
		"the authority":     {certs: []*x509.Certificate{a.cert}, want: "not for clients alone"},
		"expired":           {certs: signed(func(*x509.Certificate) {}), later: time.Hour + time.Second, want: "expired"},
		"not valid yet":     {certs: signed(func(*x509.Certificate) {}), later: -time.Second, want: "not yet valid"},
		"for servers":       {certs: signed(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), want: "incompatible key usage"},
		"for anything":      {certs: signed(func(c *x509.Certificate) { c.ExtKeyUsage = nil }), want: "not for clients alone"},
		"for servers, too":  {certs: signed(func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) }), want: "not for clients alone"},
		"an authority":      {certs: signed(func(c *x509.Certificate) { c.IsCA = true }), want: "not for clients alone"},
		"another name":      {certs: signed(func(c *x509.Certificate) { c.Subject.CommonName = "other" }), want: `common name is "other"`},
		"a host, too":       {certs: signed(func(c *x509.Certificate) { c.DNSNames = []string{"a.example.com"} }), want: "not one URI"},
		"no URI":            {certs: named(), want: "not one URI"},
		"two URIs":          {certs: named(wardle().String(), "sailplane-etcd:///other?uid=u"), want: "not one URI"},
		"another scheme":    {certs: named("spiffe:///flunders?uid=u"), want: "does not name a tenant"},
		"another authority": {certs: named("sailplane-etcd://host/flunders?uid=u"), want: "does not name a tenant"},
		"a path":            {certs: named("sailplane-etcd:///flunders/more?uid=u"), want: "not a DNS label"},
		"an encoded name":   {certs: named("sailplane-etcd:///%66lunders?uid=u"), want: "does not name a tenant"},
		"two UIDs":          {certs: named("sailplane-etcd:///flunders?uid=u&uid=v"), want: "does not name a tenant"},
		"more than a UID":   {certs: named("sailplane-etcd:///flunders?uid=u&a=b"), want: "does not name a tenant"},
		"no UID":            {certs: named("sailplane-etcd:///flunders"), want: "no UID"},
		"an empty UID":      {certs: named("sailplane-etcd:///flunders?uid="), want: "no UID"},
		"a fragment":        {certs: named(wardle().String() + "#a"), want: "does not name a tenant"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := identify(c.certs, []*x509.Certificate{a.cert}, epoch().Add(c.later))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || got != (tenantID{}) {
					t.Errorf("got %v, %v, want %q", got, err, c.want)
				}
				return
			}
			if err != nil || got != wardle() {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	if got, err := identify(cases["good"].certs, nil, epoch()); err == nil {
		t.Errorf("without authorities: %v", got)
	}
}

// TestParseAuthority: what cannot sign is told when it is read.
func TestParseAuthority(t *testing.T) {
	t.Parallel()
	cert, key, err := newTestAuthority(t).encode()
	if err != nil {
		t.Fatal(err)
	}
	otherCert, otherKey, err := newTestAuthority(t).encode()
	if err != nil {
		t.Fatal(err)
	}
	a := newTestAuthority(t)
	leafCert, leafKey, err := a.sign(wardle(), time.Hour, epoch())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		cert, key []byte
		want      string
	}{
		"nothing":              {nil, nil, "read its certificate"},
		"no key":               {cert, nil, "read its private key"},
		"another key":          {cert, otherKey, "does not belong"},
		"two certificates":     {append(bytes.Clone(cert), otherCert...), key, "2 certificates"},
		"a tenant":             {leafCert, leafKey, "not one that may sign"},
		"a key and no private": {cert, cert, "read its private key"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parseAuthority(c.cert, c.key); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

type countingListener int

func (l *countingListener) Enqueue() { *l++ }

// TestTrusted: there is no authority at first; listeners are told of each change, and of nothing else.
func TestTrusted(t *testing.T) {
	t.Parallel()
	var told countingListener
	ca := &trusted{}
	ca.AddListener(&told)
	if _, ok := ca.VerifyOptions(); ok || ca.CurrentCABundleContent() != nil || ca.roots() != nil {
		t.Error("it has authorities")
	}
	one, _, err := newTestAuthority(t).encode()
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := newTestAuthority(t).encode()
	if err != nil {
		t.Fatal(err)
	}
	both := append(bytes.Clone(one), two...)
	for i, c := range []struct {
		content []byte
		fails   bool
		told    countingListener
		want    []byte
	}{
		{nil, true, 0, nil},
		{one, false, 1, one},
		{one, false, 1, one},
		{[]byte("nothing"), true, 1, one},
		{nil, true, 1, one},
		{both, false, 2, both},
	} {
		if err := ca.set(c.content); (err != nil) != c.fails {
			t.Errorf("%d: %v", i, err)
		}
		if diff := cmp.Diff(string(c.want), string(ca.CurrentCABundleContent())); diff != "" || told != c.told {
			t.Errorf("%d: told %d times, want %d (-want +got):\n%s", i, told, c.told, diff)
		}
	}
	if _, ok := ca.VerifyOptions(); !ok || len(ca.roots()) != 2 {
		t.Errorf("it has %d authorities", len(ca.roots()))
	}
}

// FuzzTenantID: a URI that is read is the one that the tenant's certificates have.
func FuzzTenantID(f *testing.F) {
	f.Add(wardle().String())
	f.Add("sailplane-etcd:/a?uid=b")
	f.Add("sailplane-etcd:a?uid=b")
	f.Add("sailplane-etcd:////a?uid=b+%20")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		id, err := parseTenantID(u)
		if err != nil {
			return
		}
		again, err := url.Parse(id.String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseTenantID(again); err != nil || got != id || id.String() != u.String() || id.name == "" || id.uid == "" {
			t.Errorf("%q is %v, and %v, %v", text, id, got, err)
		}
	})
}
