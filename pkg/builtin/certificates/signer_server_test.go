package certificates

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// until waits for a request to be as wanted.
func until(t *testing.T, requests certificatesclient.CertificateSigningRequestInterface, name, want string) *csr {
	t.Helper()
	got := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r, err := requests.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got = summary(r); got == want {
			return r
		}
	}
	t.Fatalf("request %q is %s, not %s", name, got, want)
	return nil
}

func TestSigner(t *testing.T) {
	t.Parallel()
	ca, fileCA := newAuthority(t, 1000*time.Hour), newAuthority(t, 1000*time.Hour)
	fromFiles := Signer{
		Name: "files.example.com/server", Duration: time.Hour,
		Approve: func(r *certificatesv1.CertificateSigningRequest) bool { return r.Spec.Username == "ann" },
	}
	fromFiles.CertificateFile, fromFiles.KeyFile = writeAuthority(t, fileCA)
	config := start(t, Signer{Name: "example.com/client", Certificate: ca.certificate, Key: ca.key}, fromFiles)
	admin, ann := as(t, config, rest.ImpersonationConfig{}), as(t, config, called("ann"))

	r := newRequest(t, "good", "example.com/client", "a")
	r.Spec.ExpirationSeconds = ptr.To[int32](3600)
	bad := newRequest(t, "bad", "example.com/client")
	bad.Spec.Usages = append(bad.Spec.Usages, "crl sign")
	for _, r := range []*csr{
		r, bad, newRequest(t, "denied", "example.com/client"), newRequest(t, "waiting", "example.com/client"),
		newRequest(t, "other", "example.com/other"), newRequest(t, "not-ann", "files.example.com/server"),
	} {
		mustCreate(t, config, r)
	}
	for name, c := range map[string]certificatesv1.RequestConditionType{"good": "Approved", "bad": "Approved", "denied": "Denied", "other": "Approved"} {
		r, err := admin.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.UpdateApproval(t.Context(), name, decided(r, c), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, until(t, admin, "good", "Approved,Issued"), ca, "CN=ann,O=a")
	failed := until(t, admin, "bad", "Approved,Failed")
	if c := conditions(failed, certificatesv1.CertificateFailed)[0]; c.Reason != "SignerValidationFailure" ||
		c.Message != "invalid usage for a certificate that is not a CA: crl sign" || c.LastTransitionTime.IsZero() {
		t.Errorf("a failure says why: %+v", c)
	}

	if _, err := ann.Create(t.Context(), newRequest(t, "ann", "files.example.com/server"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	approved := until(t, admin, "ann", "Approved,Issued")
	verify(t, approved, fileCA, "CN=ann")
	if c := approved.Status.Conditions[0]; c.Reason != "AutoApproved" {
		t.Errorf("an approval says whose it is: %+v", c)
	}
	for name, want := range map[string]string{"denied": "Denied", "waiting": "Pending", "other": "Approved", "not-ann": "Pending"} {
		until(t, admin, name, want)
	}
}

// verify checks a certificate of an hour for a client.
func verify(t *testing.T, r *csr, ca *authority, subject string) {
	t.Helper()
	got := decode(t, r.Status.Certificate)
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	if _, err := got.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("request %q: %v", r.Name, err)
	}
	if left := time.Until(got.NotAfter).Round(time.Minute); got.Subject.String() != subject || got.KeyUsage != x509.KeyUsageDigitalSignature || left != time.Hour {
		t.Errorf("request %q: the certificate is for %s, key usage %v, %v", r.Name, got.Subject, got.KeyUsage, left)
	}
}

func TestSignerThatCannotStart(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, time.Hour)
	s := Signer{Name: "example.com/client", Certificate: ca.certificate, Key: ca.key}
	for name, c := range map[string]struct {
		reason string
		parts  []controlplane.Part
		want   string
	}{
		"alone": {"there is nothing to sign", []controlplane.Part{s}, "add certificates.CertificateSigningRequests{}"},
		"twice": {"each would sign for the other", []controlplane.Part{CertificateSigningRequests{}, s, s}, `sign-example.com.client`},
		"zero":  {"it has no name", []controlplane.Part{CertificateSigningRequests{}, Signer{}}, "field Name"},
	} {
		_, err := controlplane.New("certificates-test").Storage(memory.Store{}).With(c.parts...).Build()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: got %v, want %q", name, c.reason, err, c.want)
		}
	}
	missing := Signer{Name: s.Name, CertificateFile: t.TempDir() + "/ca.crt", KeyFile: "ca.key"}
	server, err := controlplane.New("certificates-test").Storage(memory.Store{}).With(CertificateSigningRequests{}, missing).Build()
	if err != nil {
		t.Fatal(err)
	}
	wants(t, server.Run(t.Context()), "field CertificateFile: open ", "a server without its files does not start")
}
