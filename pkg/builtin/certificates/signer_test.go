package certificates

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
)

func TestSignerFields(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, time.Hour)
	good := Signer{Name: "example.com/client", Certificate: ca.certificate, Key: ca.key}
	cases := map[string]struct {
		reason string
		change func(*Signer)
		want   string // "": it is good
	}{
		"good":  {reason: "a name and an authority are enough", change: func(*Signer) {}},
		"files": {reason: "files are read later", change: func(s *Signer) { *s = Signer{Name: s.Name, CertificateFile: "a", KeyFile: "b"} }},
		"zero":  {reason: "there is no default authority", change: func(s *Signer) { *s = Signer{} }, want: "field Name: give a domain and a path"},
		"half":  {reason: "both are needed", change: func(s *Signer) { s.Key = nil }, want: "either as Certificate and Key or as CertificateFile and KeyFile"},
		"two":   {reason: "one would be ignored", change: func(s *Signer) { s.KeyFile = "b" }, want: "either as Certificate and Key or as"},
		"key": {
			reason: "what it signs would not verify", change: func(s *Signer) { s.Key = newKey(t) },
			want: `fields Certificate and Key: the key does not belong to the certificate "CN=test-ca"`,
		},
		"leaf": {
			reason: "nobody trusts what a leaf signs", change: func(s *Signer) { s.Certificate = &x509.Certificate{PublicKey: ca.key.Public()} },
			want: "is not a CA certificate",
		},
		"kubelet": {
			reason: "its rules need nodes", change: func(s *Signer) { s.Name = certificatesv1.KubeletServingSignerName },
			want: "field Name: kubernetes.io/kubelet-serving is for kubelets",
		},
		"long": {reason: "a Lease is named after it", change: func(s *Signer) { s.Name = "example.com/" + strings.Repeat("a", 200) }, want: "longer than 200 characters"},
		"patterns": {
			reason: "a star stands at the end", change: func(s *Signer) { s.Organizations = []string{"*a"} },
			want: `field Organizations[0]: "*a": want a name, or the beginning of one and "*"`,
		},
		"usages": {reason: "authorities are never signed", change: func(s *Signer) { s.Usages = []certificatesv1.KeyUsage{"cert sign"} }, want: "field Usages[0]"},
		"flying": {reason: "there is no such usage", change: func(s *Signer) { s.Usages = []certificatesv1.KeyUsage{"flying"} }, want: "field Usages[0]"},
		"brief":  {reason: "less cannot be asked for", change: func(s *Signer) { s.Duration = time.Minute }, want: "field Duration: 1m0s is too short: give 10m0s or more"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := good
			tc.change(&s)
			err := s.check()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func decode(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(data)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one certificate in PEM: %q", data)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestIssue(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, 1000*time.Hour)
	s := Signer{Name: "example.com/any", Certificate: ca.certificate, Key: ca.key, Duration: 24 * time.Hour}.withDefaults()
	s.Usages = []certificatesv1.KeyUsage{"digital signature", "key encipherment", "server auth", "email protection"}
	r := newRequest(t, "a", s.Name)
	r.Spec.Request = pkcs10(t, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "ann", Organization: []string{"a", "b"}, ExtraNames: []pkix.AttributeTypeAndValue{{Type: []int{1, 2, 3}, Value: "x"}}},
		DNSNames: []string{"a.example.com"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1).To4()}, EmailAddresses: []string{"a@example.com"},
		URIs: []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/a"}},
		// It asks to be an authority.
		ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}},
	})
	r.Spec.Usages = []certificatesv1.KeyUsage{"signing", "key encipherment", "server auth", "s/mime", "email protection"}
	now := time.Now().Truncate(time.Second)
	data, err := s.issue(r, now)
	if err != nil {
		t.Fatal(err)
	}
	got := decode(t, data)
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	if _, err := got.Verify(x509.VerifyOptions{Roots: roots, DNSName: "a.example.com", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		t.Error(err)
	}
	want := []any{
		"CN=ann,O=a+O=b",
		[]string{"a.example.com"},
		"10.0.0.1",
		[]string{"a@example.com"},
		"spiffe://example.com/a", false,
		x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageEmailProtection},
		now.Add(-5 * time.Minute).UTC(), now.Add(24*time.Hour - 5*time.Minute).UTC(),
	}
	have := []any{
		got.Subject.String(), got.DNSNames, got.IPAddresses[0].String(), got.EmailAddresses, got.URIs[0].String(), got.IsCA,
		got.KeyUsage, got.ExtKeyUsage, got.NotBefore, got.NotAfter,
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("a certificate has what the request names and nothing else (-want +got):\n%s", diff)
	}
}

func TestIssueDuration(t *testing.T) {
	t.Parallel()
	const year, day = 365 * 24 * time.Hour, 24 * time.Hour
	cases := map[string]struct {
		reason         string
		duration, left time.Duration
		asked          *int32
		want           time.Duration // from now on
	}{
		"default": {reason: "what the signer gives", duration: day, left: year, want: day - backdate},
		"less":    {reason: "what was asked for", duration: day, left: year, asked: ptr.To[int32](3600), want: time.Hour},
		"more":    {reason: "the most the signer gives", duration: day, left: year, asked: ptr.To[int32](100 * 86400), want: day - backdate},
		"tiny":    {reason: "as little as may be asked for", duration: day, left: year, asked: ptr.To[int32](1), want: 10 * time.Minute},
		"capped":  {reason: "no longer than the authority", duration: year, left: day, want: day},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newAuthority(t, tc.left)
			r := newRequest(t, "a", "example.com/client")
			r.Spec.ExpirationSeconds = tc.asked
			now := time.Now()
			data, err := Signer{Name: r.Spec.SignerName, Certificate: ca.certificate, Key: ca.key, Duration: tc.duration}.withDefaults().issue(r, now)
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, data).NotAfter.Sub(now).Round(time.Minute); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestIssueRefused(t *testing.T) {
	t.Parallel()
	const client = certificatesv1.KubeAPIServerClientSignerName
	ca := newAuthority(t, time.Hour)
	cases := map[string]struct {
		reason string
		signer string
		groups []string
		usages []certificatesv1.KeyUsage
		want   string
	}{
		"authority": {"it would sign in our name", "example.com/any", nil, []certificatesv1.KeyUsage{"cert sign"}, "invalid usage for a certificate that is not a CA: cert sign"},
		"unknown":   {"it may have been stored by another server", "example.com/any", nil, []certificatesv1.KeyUsage{"flying"}, `unknown usage: "flying"`},
		"server":    {"the well-known signer is for clients", client, nil, []certificatesv1.KeyUsage{"client auth", "server auth"}, "invalid usage for client certificate: server auth"},
		"no client": {"the well-known signer is for clients", client, nil, []certificatesv1.KeyUsage{"digital signature"}, "missing required usage for client certificate: client auth"},
		"masters": {
			"it may do everything", client,
			[]string{"system:masters"},
			[]certificatesv1.KeyUsage{"client auth"},
			`the signer kubernetes.io/kube-apiserver-client does not sign the organization "system:masters": ask for another, or have it added to field Organizations of the signer`,
		},
		"system": {
			"groups of the system are not given away", "example.com/any",
			[]string{"a", "system:nodes"},
			[]certificatesv1.KeyUsage{"client auth"},
			`the signer example.com/any does not sign the organization "system:nodes": ask for another, or have it added to field Organizations of the signer`,
		},
		"no usage": {
			"without an extended usage it would be good for all", "example.com/any", nil,
			[]certificatesv1.KeyUsage{"digital signature"},
			`the signer example.com/any signs nothing that says not what it is for: ask for one of its extended usages, such as "client auth"`,
		},
		"usage": {
			"a client is no server", "example.com/any", nil,
			[]certificatesv1.KeyUsage{"client auth", "server auth"},
			`the signer example.com/any does not sign the usage "server auth": ask for another, or have it added to field Usages of the signer`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRequest(t, "a", tc.signer, tc.groups...)
			r.Spec.Usages = tc.usages
			_, err := Signer{Name: tc.signer, Certificate: ca.certificate, Key: ca.key, Duration: time.Hour}.withDefaults().issue(r, time.Now())
			if !errors.As(err, new(requestError)) || err.Error() != tc.want {
				t.Errorf("%s: got %v, want the refusal %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestIssueAllowed: what the fields list is signed, and nothing else.
func TestIssueAllowed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, time.Hour)
	s := Signer{
		Name: "example.com/any", Certificate: ca.certificate, Key: ca.key,
		CommonNames: []string{"robot-*", "system:node:*"}, Organizations: []string{"robots", "system:nodes", "system:masters"},
	}.withDefaults()
	for name, tc := range map[string]struct {
		reason  string
		subject pkix.Name
		want    bool
	}{
		"listed":  {"the fields list it", pkix.Name{CommonName: "robot-1", Organization: []string{"robots"}}, true},
		"system":  {"they list names of the system", pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}, true},
		"masters": {"even that group, by its name", pkix.Name{CommonName: "robot-1", Organization: []string{"system:masters"}}, true},
		"user":    {"another user", pkix.Name{CommonName: "ann", Organization: []string{"robots"}}, false},
		"nobody":  {"no user", pkix.Name{Organization: []string{"robots"}}, false},
		"group":   {"one of the groups is another", pkix.Name{CommonName: "robot-1", Organization: []string{"robots", "growers"}}, false},
	} {
		r := newRequest(t, "a", s.Name)
		r.Spec.Request = pkcs10(t, &x509.CertificateRequest{Subject: tc.subject})
		if _, err := s.issue(r, time.Now()); (err == nil) != tc.want {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
	}
}

func TestAuthorityThatEnded(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, -time.Minute)
	_, err := Signer{Name: "example.com/client", Certificate: ca.certificate, Key: ca.key, Duration: time.Hour}.withDefaults().issue(newRequest(t, "a", "example.com/client"), time.Now())
	if err == nil || errors.As(err, new(requestError)) || !strings.Contains(err.Error(), "the certificate authority expired at") {
		t.Errorf("the request is not at fault, and is tried again: got %v", err)
	}
}

// writeAuthority writes the two files of an authority.
func writeAuthority(t *testing.T, ca *authority) (certificateFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certificateFile, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	key, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(certificateFile, inPEM(ca.certificate), 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return certificateFile, keyFile
}

func TestAuthorityFiles(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, time.Hour), newAuthority(t, time.Hour)
	s := Signer{Name: "example.com/client"}
	s.CertificateFile, s.KeyFile = writeAuthority(t, ca)
	got, err := s.authority()
	if err != nil {
		t.Fatal(err)
	}
	if !got.certificate.Equal(ca.certificate) {
		t.Error("another certificate was read")
	}
	_, s.KeyFile = writeAuthority(t, other)
	if _, err := s.authority(); err == nil || !strings.Contains(err.Error(), "the key does not belong to the certificate") {
		t.Errorf("a key of another certificate is a mistake: got %v", err)
	}
	s.KeyFile = s.CertificateFile
	if _, err := s.authority(); err == nil || !strings.HasPrefix(err.Error(), "field KeyFile: ") {
		t.Errorf("the field is named: got %v", err)
	}
	s.CertificateFile += ".missing"
	if _, err := s.authority(); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "field CertificateFile: ") {
		t.Errorf("the field is named: got %v", err)
	}
}
