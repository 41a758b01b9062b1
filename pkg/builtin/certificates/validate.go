package certificates

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// shortest is the least that may be asked for in spec.expirationSeconds.
const shortest = 600

// parse reads the PKCS #10 request in spec.request.
func parse(r *csr) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	// The time to check a signature grows with the square of the key.
	if key, ok := parsed.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > longestRSA {
		return nil, fmt.Errorf("the RSA key has %d bits, at most %d are allowed", key.N.BitLen(), longestRSA)
	}
	return parsed, nil
}

// longestRSA is how many bits an RSA key may have.
const longestRSA = 16384

// validateSpec is for new requests: the spec never changes.
func validateSpec(r *csr) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	parsed, err := parse(r)
	if err == nil {
		err = parsed.CheckSignature()
	}
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, validateUsages(r.Spec.Usages, path.Child("usages"))...)
	errs = append(errs, validateSignerName(r.Spec.SignerName, path.Child("signerName"))...)
	if s := r.Spec.ExpirationSeconds; s != nil && *s < shortest {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s,
			"may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

func validateUsages(usages []certificatesv1.KeyUsage, path *field.Path) field.ErrorList {
	if len(usages) == 0 {
		return field.ErrorList{field.Required(path, "usages must be provided")}
	}
	known := knownUsages()
	var errs field.ErrorList
	for i, usage := range usages {
		if _, ok := known[usage]; !ok {
			errs = append(errs, field.NotSupported(path.Index(i), usage, slices.Sorted(maps.Keys(known))))
		}
		if slices.Contains(usages[:i], usage) {
			errs = append(errs, field.Duplicate(path.Index(i), usage))
		}
	}
	return errs
}

// The parts of a signer name: a domain, and a path that has room for a
// namespace, a dot and a name.
const (
	longestDomain = validation.DNS1123SubdomainMaxLength
	longestPath   = validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength
)

// validateSignerName wants a domain with a dot and a path, "example.com/client".
func validateSignerName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "signerName must be provided")}
	}
	domain, rest, found := strings.Cut(name, "/")
	if !found || strings.Contains(rest, "/") {
		return field.ErrorList{field.Invalid(path, name,
			"must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(domain) > longestDomain {
		errs = append(errs, field.TooLong(path, domain, longestDomain))
	}
	errs = append(errs, validateLabels(domain, path, validation.IsDNS1123Label)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, validateLabels(rest, path, validation.IsDNS1123Subdomain)...)
	if longest := longestDomain + 1 + longestPath; len(name) > longest {
		errs = append(errs, field.TooLong(path, name, longest))
	}
	return errs
}

// validateLabels returns what is wrong with the first bad label between the dots.
func validateLabels(name string, path *field.Path, problems func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(name, ".") {
		var errs field.ErrorList
		for _, problem := range problems(label) {
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("validating label %q: %s", label, problem)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}

// deciding are the conditions that decide about a request: they are true or
// absent, and stay.
func deciding() []certificatesv1.RequestConditionType {
	return []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
	}
}

// validateConditions is for both sub-resources.
func validateConditions(r, old *csr) field.ErrorList {
	path := field.NewPath("status", "conditions")
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range r.Status.Conditions {
		at := path.Index(i)
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		errs = append(errs, validateConditionStatus(c, at.Child("status"))...)
		if c.Type == certificatesv1.CertificateApproved && seen[certificatesv1.CertificateDenied] ||
			c.Type == certificatesv1.CertificateDenied && seen[certificatesv1.CertificateApproved] {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	for _, t := range deciding() {
		if has(old, t) && !has(r, t) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	return errs
}

func validateConditionStatus(c certificatesv1.CertificateSigningRequestCondition, path *field.Path) field.ErrorList {
	allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
	if slices.Contains(deciding(), c.Type) {
		allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
	}
	return check.OneOf(path, c.Status, allowed...)
}

// validateUndecided is for /status, which decides nothing. Changes of existing
// conditions are undone before.
func validateUndecided(r, old *csr) field.ErrorList {
	var errs field.ErrorList
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		if has(r, t) && !has(old, t) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"),
				fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	return errs
}

// validateCertificate is for /status.
func validateCertificate(r, old *csr) field.ErrorList {
	if bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		return nil
	}
	path := field.NewPath("status", "certificate")
	var errs field.ErrorList
	if err := checkCertificates(r.Status.Certificate); err != nil {
		errs = append(errs, field.Invalid(path, "<certificate data>", err.Error()))
	}
	if len(old.Status.Certificate) > 0 {
		errs = append(errs, field.Forbidden(path, "updates may not modify existing certificate content"))
	}
	return errs
}

// checkCertificates wants certificates in PEM and allows text around them.
func checkCertificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certs, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certs) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		blocks++
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
