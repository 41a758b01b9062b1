package main

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/tracing"
)

// choice is what a server has beside the least.
type choice struct {
	parts controlplane.Parts
	// storage keeps what is stored.
	storage controlplane.Storage
	// limits are those of the server.
	limits controlplane.Limits
	// prepare makes what the user needs. It may change the kubeconfig.
	prepare func(ctx context.Context, admin *rest.Config, kubeconfig string) error
}

// everyRequest of a million is traced.
const everyRequest = 1_000_000

// choose knows what -part may be: see parts.go of the benchmark.
func choose(name, dir, collector string) (choice, error) {
	nothing := func(context.Context, *rest.Config, string) error { return nil }
	with := func(parts ...controlplane.Part) (choice, error) {
		parts = append(controlplane.Parts{authz.Groups{Admins: []string{group}}}, parts...)
		return choice{parts: parts, storage: memory.Store{}, prepare: nothing}, nil
	}
	switch name {
	case "none":
		return with()
	case "unlimited":
		c, err := with()
		c.limits = unlimited()
		return c, err
	case "rbac":
		return choice{parts: controlplane.Parts{authz.RBAC{}}, storage: memory.Store{}, prepare: bind}, nil
	case "audit":
		return with(auditing.Log{Path: filepath.Join(dir, "audit.log")})
	case "fairness":
		return with(fairness.PriorityAndFairness{}, kube.FlowControl())
	case "limits":
		// High enough to refuse nothing.
		return with(fairness.Limits{RequestsPerSecond: 1e6, ObjectBytes: 1 << 20, ObjectsPerResource: 1e6, WatchesPerUser: 1000})
	case "policies":
		return with(admit.MutatingPolicies{}, admit.ValidatingPolicies{}, admissionregistration.All())
	case "webhooks":
		return with(admit.MutatingWebhooks{}, admit.ValidatingWebhooks{}, admissionregistration.All())
	case "tokens":
		return choice{parts: controlplane.Parts{
			authz.Groups{Admins: []string{group, "system:serviceaccounts"}}, core.ServiceAccounts{}, serviceaccount.Tokens{},
		}, storage: memory.Store{}, prepare: logIn}, nil
	case "tracing-off":
		return with(tracing.OTLP{Endpoint: collector})
	case "tracing-on":
		return with(tracing.OTLP{Endpoint: collector, SamplesPerMillion: everyRequest})
	case "handed":
		return handed()
	case "virtual":
		return choice{parts: virtual(), storage: memory.Store{}, prepare: nothing}, nil
	case "kept":
		return kept(dir)
	case "filtered":
		return with(authz.FilteredLists{Resources: []schema.GroupResource{{Resource: "configmaps"}}})
	}
	return choice{}, fmt.Errorf("-part %q is unknown", name)
}

// unlimited is a server that bounds nothing.
func unlimited() controlplane.Limits {
	const no = controlplane.Unlimited
	return controlplane.Limits{
		HeaderBytes: no, URLBytes: no, HeaderTime: no, BodyTime: no,
		CertificateChain: no, CertificateKeyBits: no, HistoryBytes: no, LargeRequests: no,
		Answers: controlplane.AnswerLimits{Bytes: no, BytesPerUser: no, Stall: no},
		Bodies:  controlplane.BodyLimits{Depth: no, Values: no, Members: no, Metadata: no, Operations: no},
		Addresses: controlplane.AddressLimits{
			Connections: no, HandshakesPerSecond: no, HandshakeBurst: no, FailuresPerSecond: no, FailureBurst: no,
		},
	}
}

// bind gives the user a role that lets them do everything.
func bind(ctx context.Context, admin *rest.Config, _ string) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// logIn has the kubeconfig log in with the token of a service account.
func logIn(ctx context.Context, admin *rest.Config, kubeconfig string) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	accounts := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: user}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	token, err := accounts.CreateToken(ctx, user, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	return clientcmd.WriteToFile(*config, kubeconfig)
}
