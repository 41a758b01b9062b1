package certificates

import (
	"context"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// signers tells what users may do for signers. Admission plugins embed it.
type signers struct{ authorizer authorizer.Authorizer }

func (s *signers) SetAuthorizer(a authorizer.Authorizer) { s.authorizer = a }

func (s *signers) ValidateInitialization() error {
	if s.authorizer == nil {
		return errors.New("it has no authorizer")
	}
	return nil
}

// allowed asks about the signer, then about its whole domain.
func (s *signers) allowed(ctx context.Context, who user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, reason, err := s.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: who, Verb: verb, ResourceRequest: true,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", Name: name,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
		if err != nil {
			klog.FromContext(ctx).V(3).Info("Authorization check failed", "verb", verb, "signer", name, "reason", reason, "err", err)
		}
	}
	return false
}

// attestation is the plugin ClusterTrustBundleAttest: to write a bundle of a
// signer, a user needs the permission to attest for it.
type attestation struct {
	*admission.Handler
	signers
}

var (
	_ admission.ValidationInterface     = &attestation{}
	_ admission.InitializationValidator = &attestation{}
	_ initializer.WantsAuthorizer       = &attestation{}
)

func (p *attestation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("clustertrustbundles") {
		return nil
	}
	b, ok := a.GetObject().(*bundle)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type ClusterTrustBundle, got: %T", a.GetObject()))
	}
	// The new bundle names the signer: validation refuses to change it.
	signer := b.Spec.SignerName
	if signer == "" || check.OnlyCollected(b, a.GetOldObject()) {
		return nil
	}
	if !p.allowed(ctx, a.GetUserInfo(), "attest", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
	}
	return nil
}
