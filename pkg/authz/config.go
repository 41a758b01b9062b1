package authz

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	apivalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

// typeRBAC is the type of an entry that decides by roles and bindings.
const typeRBAC apiserver.AuthorizerType = "RBAC"

// Config asks the authorizers of an AuthorizationConfiguration of
// apiserver.config.k8s.io/v1, in the order of the file:
// https://kubernetes.io/docs/reference/access-authn-authz/authorization/#using-configuration-file-for-authorization
//
// Its entries are of type RBAC, at most one, or Webhook, with a kubeconfig each.
// An entry of type RBAC does what part [RBAC] does, and needs the same; a plane
// has one of the two. All entries are asked at the place of this part.
//
// The file is read by Build and when a server starts, and followed while it
// runs: a change is in force within seconds. A mistake is logged, and the last
// good configuration stays in force. Webhooks may come and go. An entry of type
// RBAC may move; to add or remove it needs a restart, as in kube-apiserver.
// Kubeconfigs are read again when the file changes; only their owner and group
// may have permissions on them.
type Config struct {
	// ConfigFile is the file with the configuration. Required.
	ConfigFile string
	// Read is how ConfigFile is read. A program whose own file has the configuration
	// as a section returns that section, as the content of a ConfigFile. It is called
	// every second and returns the same bytes until the configuration changes. Parts
	// that share a function call it at the same time. Empty: os.ReadFile. Kubeconfigs
	// that entries name are always files.
	Read func(file string) ([]byte, error)
}

// PartName implements the name errors use.
func (Config) PartName() string { return "authz.Config" }

// Install declares the authorizer.
func (c Config) Install(p *controlplane.Plan) error {
	if c.ConfigFile == "" {
		return errors.New("field ConfigFile: is empty: name a file with an AuthorizationConfiguration")
	}
	p.Read(func() error { return c.declare(p) })
	return nil
}

// declare declares the authorizer, and what its entries need.
func (c Config) declare(p *controlplane.Plan) error {
	f := &followed{file: c.ConfigFile, dialer: newDialer(nil), changed: p.RulesChanged}
	file := &follow.File{Source: f.source(c.Read)}
	entries, err := follow.Parse("field ConfigFile", file.Source, parse)
	if err != nil {
		return err
	}
	configmetrics.RegisterMetrics()
	if hasRBAC(entries) {
		if f.roles, err = newRoles(p); err != nil {
			return err
		}
	}
	p.Authorize(file.Name(), &f.current)
	p.Work(controlplane.Work{
		Name:  file.Name(),
		Start: func(ctx context.Context, _ *controlplane.Plane) error { return file.Begin(ctx) },
		Run:   func(ctx context.Context, _ *controlplane.Plane) error { return file.Run(ctx) },
		Stop:  f.dialer.CloseAll,
	})
	return nil
}

// entry is an authorizer of a configuration: a webhook or RBAC.
type entry struct {
	name    string
	webhook *connection // nil: RBAC
}

func hasRBAC(entries []entry) bool {
	for _, e := range entries {
		if e.webhook == nil {
			return true
		}
	}
	return false
}

// parse validates a configuration and the kubeconfigs that it names.
func parse(content []byte) ([]entry, error) {
	config, err := load.LoadFromData(content)
	if err != nil {
		return nil, err
	}
	// All types pass upstream's check, which names them only: supported says more.
	types := sets.New[string]()
	var conditions []apiserver.WebhookMatchCondition
	for _, a := range config.Authorizers {
		types.Insert(string(a.Type))
		if a.Webhook != nil {
			conditions = append(conditions, a.Webhook.MatchConditions...)
		}
	}
	repeatable := sets.New(string(apiserver.TypeWebhook))
	problems := apivalidation.ValidateAuthorizationConfiguration(compilerOf(conditions), nil, config, types, repeatable)
	if err := errors.Join(supported(config), problems.ToAggregate()); err != nil {
		return nil, err
	}
	var entries []entry
	var errs []error
	for i, a := range config.Authorizers {
		e := entry{name: a.Name}
		if a.Type == apiserver.TypeWebhook {
			e.webhook = configured(a.Name, a.Webhook)
			if err := e.webhook.check(); err != nil {
				errs = append(errs, fmt.Errorf("authorizers[%d].webhook.connectionInfo.kubeConfigFile: %s: %w",
					i, e.webhook.kubeconfig, err))
			}
		}
		entries = append(entries, e)
	}
	return entries, errors.Join(errs...)
}

// supported refuses what kube-apiserver allows in the file and a plane does not have.
func supported(config *apiserver.AuthorizationConfiguration) error {
	var errs []error
	for i, a := range config.Authorizers {
		if hint := unsupported(a.Type); hint != "" {
			errs = append(errs, fmt.Errorf("authorizers[%d].type: %q is not supported, only RBAC and Webhook: %s", i, a.Type, hint))
		}
		if a.Webhook != nil && a.Webhook.ConnectionInfo.Type == apiserver.AuthorizationWebhookConnectionInfoTypeInCluster {
			errs = append(errs, fmt.Errorf("authorizers[%d].webhook.connectionInfo.type: %s is not supported, use %s: "+
				"this server does not run in a cluster", i, apiserver.AuthorizationWebhookConnectionInfoTypeInCluster,
				apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile))
		}
	}
	return errors.Join(errs...)
}

// unsupported says what to do instead of using a type. It is empty for a
// supported or missing one.
func unsupported(t apiserver.AuthorizerType) string {
	switch t {
	case "", typeRBAC, apiserver.TypeWebhook:
		return ""
	case "Node":
		return "there are no nodes, remove it"
	case "ABAC":
		return "write roles, or a function with authz.Func"
	case "AlwaysDeny":
		return "requests that nothing allows are denied anyway, remove it"
	case "AlwaysAllow":
		return "bind a group to the ClusterRole cluster-admin, or name it in authz.Groups"
	}
	return "there is no such type"
}

// configured is the connection of a valid entry.
func configured(name string, w *apiserver.WebhookConfiguration) *connection {
	c := &connection{
		name: name, kubeconfig: *w.ConnectionInfo.KubeConfigFile, version: w.SubjectAccessReviewVersion,
		timeout: w.Timeout.Duration, onError: Deny, conditions: w.MatchConditions,
	}
	if w.FailurePolicy == apiserver.FailurePolicyNoOpinion {
		c.onError = NoOpinion
	}
	if w.CacheAuthorizedRequests {
		c.authorized = w.AuthorizedTTL.Duration
	}
	if w.CacheUnauthorizedRequests {
		c.unauthorized = w.UnauthorizedTTL.Duration
	}
	return c
}
