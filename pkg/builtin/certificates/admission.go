package certificates

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
)

// permission is an admission plugin: when a sub-resource is written, it asks
// whether the user has a permission for the signer of the request.
type permission struct {
	*admission.Handler
	signers

	subresource string
	verb        string
	// concerns tells whether the change needs the permission.
	concerns func(r, old *csr) bool
}

var (
	_ admission.ValidationInterface     = &permission{}
	_ admission.InitializationValidator = &permission{}
	_ initializer.WantsAuthorizer       = &permission{}
	_ admission.ValidationInterface     = subjectRestriction{}
)

// newApprovalPermission is the plugin CertificateApproval.
func newApprovalPermission() *permission {
	return &permission{
		Handler: admission.NewHandler(admission.Update), subresource: "approval", verb: "approve",
		concerns: func(_, _ *csr) bool { return true },
	}
}

// newSigningPermission is the plugin CertificateSigning. Metadata can be
// changed without the permission.
func newSigningPermission() *permission {
	return &permission{
		Handler: admission.NewHandler(admission.Update), subresource: "status", verb: "sign",
		concerns: func(r, old *csr) bool {
			return !bytes.Equal(r.Status.Certificate, old.Status.Certificate) ||
				!equality.Semantic.DeepEqual(r.Status.Conditions, old.Status.Conditions)
		},
	}
}

func (p *permission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !concernsRequests(a, p.subresource) {
		return nil
	}
	r, ok := a.GetObject().(*csr)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetObject()))
	}
	old, ok := a.GetOldObject().(*csr)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetOldObject()))
	}
	// The old request names the signer: the caller cannot change it.
	signer := old.Spec.SignerName
	if !p.concerns(r, old) || p.allowed(ctx, a.GetUserInfo(), p.verb, signer) {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("user not permitted to %s requests with signerName %q", p.verb, signer))
}

func concernsRequests(a admission.Attributes, subresource string) bool {
	return a.GetSubresource() == subresource &&
		a.GetResource().GroupResource() == certificatesv1.Resource("certificatesigningrequests")
}

// subjectRestriction is the plugin CertificateSubjectRestriction: no client
// certificate makes its owner a member of the group that may do everything.
type subjectRestriction struct{ *admission.Handler }

func (subjectRestriction) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !concernsRequests(a, "") {
		return nil
	}
	r, ok := a.GetObject().(*csr)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetObject()))
	}
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	parsed, err := parse(r)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(parsed.Subject.Organization, user.SystemPrivilegedGroup) {
		return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed",
			certificatesv1.KubeAPIServerClientSignerName, user.SystemPrivilegedGroup))
	}
	return nil
}
