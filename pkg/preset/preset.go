// Package preset bundles parts for programs that want no choice:
//
//   - [Standard]: the built-in resources of a control plane without nodes, and
//     what keeps them right
//   - [Custom]: the same with a choice or two
package preset

import (
	"net/netip"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/services"
)

// Standard serves namespaces, configmaps, secrets, serviceaccounts, services,
// events, resourcequotas, limitranges, leases, certificatesigningrequests,
// clustertrustbundles and podcertificaterequests, answers reviews of who somebody
// is and what they may do, empties deleted namespaces, collects garbage, enforces
// quotas and limits, and finds the Services that webhooks name.
// To serve less, list the parts yourself.
func Standard() controlplane.Part { return Custom{}.Parts() }

// Custom is [Standard] with choices. The zero value is Standard itself.
type Custom struct {
	// WebhookDeny are networks that admission webhooks may not be in, see
	// [admit.ValidatingWebhooks]. [admit.LinkLocal] is always in it.
	WebhookDeny []netip.Prefix
	// WebhookAllow are networks in denied ones that admission webhooks may be in.
	WebhookAllow []netip.Prefix
}

// Parts are those of [Standard], as chosen.
func (c Custom) Parts() controlplane.Parts {
	return controlplane.Parts{
		core.Namespaces{},
		core.ConfigMaps{},
		core.Secrets{},
		core.ServiceAccounts{},
		core.Services{},
		services.Resolver{},
		core.Events{},
		coordination.Leases{},
		certificates.CertificateSigningRequests{},
		certificates.ClusterTrustBundles{},
		certificates.PodCertificateRequests{},
		authentication.TokenReviews{},
		authentication.SelfSubjectReviews{},
		authorization.All(),
		lifecycle.GarbageCollection{},
		lifecycle.OwnerPermissions{},
		quota.LimitRanges{},
		admissionregistration.All(),
		admit.MutatingPolicies{},
		admit.MutatingWebhooks{Deny: c.WebhookDeny, Allow: c.WebhookAllow},
		admit.ValidatingPolicies{},
		admit.ValidatingWebhooks{Deny: c.WebhookDeny, Allow: c.WebhookAllow},
		quota.ResourceQuotas{},
	}
}
