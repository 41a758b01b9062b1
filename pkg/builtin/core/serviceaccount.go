package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// ServiceAccounts is the part that serves serviceaccounts (v1). They are names
// for permissions: tokens come with serviceaccount.Tokens, and accounts named
// default with lifecycle.DefaultServiceAccounts.
//
// kubectl get prints name and age, as Kubernetes 1.36 does: the list that the
// column SECRETS counted has been empty since tokens are no longer Secrets
// (https://github.com/kubernetes/kubernetes/pull/117160).
type ServiceAccounts struct{}

// Install adds serviceaccounts to the core group.
func (ServiceAccounts) Install(p *controlplane.Plan) error {
	return shared().Serve(p, serviceAccounts())
}

// enforceMountableSecrets was for the kubelet's sake, and is deprecated.
const enforceMountableSecrets = "kubernetes.io/enforce-mountable-secrets"

func serviceAccounts() *apis.Definition {
	return apis.Resource[corev1.ServiceAccount, corev1.ServiceAccountList]("serviceaccounts",
		apis.ShortNames("sa"),
		apis.NoGeneration(),
		apis.Drop(func(sa, _ *corev1.ServiceAccount) { cleanSecretReferences(sa) }),
		apis.Validate(func(_ context.Context, sa *corev1.ServiceAccount) field.ErrorList {
			return validateMetaFinalizers(&sa.ObjectMeta)
		}),
		apis.Warn(serviceAccountWarnings),
		apis.Columns(func(*corev1.ServiceAccount) []any { return nil }),
	)
}

// cleanSecretReferences keeps only the names: the Secrets are in the namespace of the account.
func cleanSecretReferences(sa *corev1.ServiceAccount) {
	for i, secret := range sa.Secrets {
		sa.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}

func serviceAccountWarnings(_ context.Context, sa *corev1.ServiceAccount) []string {
	if _, ok := sa.Annotations[enforceMountableSecrets]; !ok {
		return nil
	}
	return []string{fmt.Sprintf("metadata.annotations[%s]: deprecated in v1.32+; "+
		"prefer separate namespaces to isolate access to mounted secrets", enforceMountableSecrets)}
}
