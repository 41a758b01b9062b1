package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// validatePodUpdate also asks whether the user may sign, if the status changes.
func (s *signers) validatePodUpdate(ctx context.Context, r, old *podRequest) field.ErrorList {
	errs := validatePodStatus(r, old, time.Now())
	if len(errs) > 0 || equality.Semantic.DeepEqual(r.Status, old.Status) {
		return errs
	}
	path := field.NewPath("spec", "signerName")
	who, ok := request.UserFrom(ctx)
	if !ok {
		return field.ErrorList{field.InternalError(path, errors.New("the request has no user"))}
	}
	if !s.allowed(ctx, who, "sign", old.Spec.SignerName) {
		return field.ErrorList{field.Forbidden(path,
			fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", who.GetName(), old.Spec.SignerName))}
	}
	return nil
}

// outcome is the condition that ends a request, or "".
func outcome(r *podRequest) string {
	for _, c := range r.Status.Conditions {
		if c.Status == metav1.ConditionTrue && slices.Contains(ends(), c.Type) {
			return c.Type
		}
	}
	return ""
}

// ends are the conditions that end a request.
func ends() []string {
	return []string{
		certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
		certificatesv1.PodCertificateRequestConditionTypeFailed,
	}
}

// validatePodStatus allows one step, from nothing to one of three ends.
func validatePodStatus(r, old *podRequest, now time.Time) field.ErrorList {
	status := field.NewPath("status")
	if errs := validatePodConditions(r.Status.Conditions, status.Child("conditions")); len(errs) > 0 {
		return errs
	}
	same, why := old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`
	switch {
	case outcome(old) != "":
		why = "immutable after PodCertificateRequest is issued, denied, or failed"
	case outcome(r) == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(r, status, now)
	case outcome(r) != "":
		same = certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}
		why = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
	}
	if !equality.Semantic.DeepEqual(r.Status, same) {
		return field.ErrorList{field.Invalid(status, field.OmitValueType{}, why)}
	}
	return nil
}

// validatePodConditions wants at most one, of a known type, that is true.
func validatePodConditions(all []metav1.Condition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := 0
	for i, c := range all {
		at := path.Index(i)
		if !slices.Contains(ends(), c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, ends()))
			continue
		}
		if known++; known > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type,
				`There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metavalidation.ValidateConditions(all, path)...)
}

// longestChain is how many bytes the certificates may have.
const longestChain = 100 * 1024

// validateIssued compares the certificate with the request, and the times with
// the certificate.
func validateIssued(r *podRequest, status *field.Path, now time.Time) field.ErrorList {
	path := status.Child("certificateChain")
	if len(r.Status.CertificateChain) > longestChain {
		return field.ErrorList{field.TooLong(path, "", longestChain)}
	}
	leaf, err := parseChain(r.Status.CertificateChain)
	if err != nil {
		return field.ErrorList{field.Invalid(path, r.Status.CertificateChain, err.Error())}
	}
	if errs := validateNames(leaf, path); len(errs) > 0 {
		return errs
	}
	asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		asking := field.NewPath("spec", "stubPKCS10Request")
		return field.ErrorList{field.Invalid(asking, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	if key, ok := asked.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !key.Equal(leaf.PublicKey) {
		return field.ErrorList{field.Invalid(path, r.Status.CertificateChain,
			"leaf certificate was not issued to the requested public key")}
	}
	if errs := validateTimes(&r.Status, leaf, status, now); len(errs) > 0 {
		return errs
	}
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	if life < shortestLife {
		return field.ErrorList{field.Invalid(path, life, "leaf certificate lifetime must be >= 1 hour")}
	}
	if most := r.Spec.MaxExpirationSeconds; most != nil && life > time.Duration(*most)*time.Second {
		return field.ErrorList{field.Invalid(path, life,
			fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%d)", *most))}
	}
	return nil
}

// parseChain returns the first of the certificates in PEM. The others only have
// to be certificates: the trusted authorities are not known here.
func parseChain(chain string) (*x509.Certificate, error) {
	var leaf *x509.Certificate
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, errors.New("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil && leaf == nil:
			return nil, errors.New("leaf certificate does not parse as valid X.509")
		case err != nil:
			return nil, errors.New("intermediate certificate does not parse as valid X.509")
		case leaf == nil:
			leaf = certificate
		}
	}
	if leaf == nil {
		return nil, errors.New("issued certificate chain must contain at least one certificate")
	}
	return leaf, nil
}

// validateNames checks the form of the names in the certificate.
func validateNames(leaf *x509.Certificate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(path, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(path, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

// How far the server's clock may be from the signer's, and how far the refresh
// must be from either end of the certificate.
const (
	clockSkew     = 5 * time.Minute
	refreshMargin = 10 * time.Minute
)

func validateTimes(
	s *certificatesv1.PodCertificateRequestStatus, leaf *x509.Certificate, path *field.Path, now time.Time,
) field.ErrorList {
	var errs field.ErrorList
	for _, at := range []struct {
		name, detail string
		time         *metav1.Time
	}{
		{"notBefore", "must be present and consistent with the issued certificate", s.NotBefore},
		{"notAfter", "must be present and consistent with the issued certificate", s.NotAfter},
		{"beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]", s.BeginRefreshAt},
	} {
		if at.time == nil {
			errs = append(errs, field.Required(path.Child(at.name), at.detail))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	wrong := func(name string, t *metav1.Time, detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(path.Child(name), t.Time, detail)}
	}
	switch from, to, refresh := s.NotBefore, s.NotAfter, s.BeginRefreshAt; {
	case !from.Time.Equal(leaf.NotBefore):
		return wrong("notBefore", from, "must be set to the NotBefore time encoded in the leaf certificate")
	case from.Sub(now).Abs() >= clockSkew:
		return wrong("notBefore", from, "must be set to within 5 minutes of kube-apiserver's current time")
	case !to.Time.Equal(leaf.NotAfter):
		return wrong("notAfter", to, "must be set to the NotAfter time encoded in the leaf certificate")
	case refresh.Sub(from.Time) < refreshMargin:
		return wrong("beginRefreshAt", refresh, "must be at least 10 minutes after status.notBefore")
	case to.Sub(refresh.Time) < refreshMargin:
		return wrong("beginRefreshAt", refresh, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}
