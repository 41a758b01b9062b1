package certificates

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
)

// approval is /approval, which changes conditions and never the certificate.
func approval() apis.Update[csr] {
	return apis.Update[csr]{
		Keep: func(r, old *csr) {
			r.Spec, r.Status.Certificate = old.Spec, old.Status.Certificate
			stamp(r, old, metav1.Now())
		},
		Ignores:  []string{"spec", "status.certificate"},
		Validate: func(_ context.Context, r, old *csr) field.ErrorList { return validateConditions(r, old) },
	}
}

// status is /status, which changes the certificate, and the conditions that do
// not say whether the request is approved.
func status() apis.Update[csr] {
	return apis.Update[csr]{
		Keep: func(r, old *csr) {
			r.Spec = old.Spec
			keepConditions(r, old, certificatesv1.CertificateApproved)
			keepConditions(r, old, certificatesv1.CertificateDenied)
			stamp(r, old, metav1.Now())
		},
		Ignores: []string{"spec", "status.conditions"},
		Validate: func(_ context.Context, r, old *csr) field.ErrorList {
			errs := append(validateConditions(r, old), validateUndecided(r, old)...)
			return append(errs, validateCertificate(r, old)...)
		},
	}
}

// keepConditions restores the condition of a type if both objects have it;
// validation refuses one that came or went.
func keepConditions(r, old *csr, t certificatesv1.RequestConditionType) {
	before := conditions(old, t)
	if len(before) != len(conditions(r, t)) {
		return
	}
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			r.Status.Conditions[i], before = before[0], before[1:]
		}
	}
}

// stamp sets the times that the client left out: lastUpdateTime is now, and
// lastTransitionTime is kept while the status is the same.
func stamp(r, old *csr, now metav1.Time) {
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, before := range conditions(old, c.Type) {
			if before.Status == c.Status && !before.LastTransitionTime.IsZero() {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
}
