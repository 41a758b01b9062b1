package authz

import (
	"errors"
	"net"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/cel"
	kubeconfig "k8s.io/apiserver/pkg/util/webhook"
	plugin "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// connection is how to ask another server, with all defaults filled in.
type connection struct {
	name                              string
	kubeconfig                        string // empty: client
	client                            *rest.Config
	version                           string // of SubjectAccessReviews
	timeout, authorized, unauthorized time.Duration
	onError                           Decision
	conditions                        []apiserver.WebhookMatchCondition
}

// open makes the authorizer. It connects when it is asked, through the dialer.
func (c connection) open(dialer *connrotation.Dialer) (countedWithRules, error) {
	config, err := c.config()
	if err != nil {
		return countedWithRules{}, err
	}
	config.Dial = dialer.DialContext
	config.Timeout = c.timeout
	// Requests are limited before they are authorized.
	config.QPS = -1
	config.Wrap(dialing.WithoutRedirects)
	a, err := plugin.New(config, c.version, c.authorized, c.unauthorized, *plugin.DefaultRetryBackoff(), c.onError,
		c.conditions, c.name, newMeasured(), compilerOf(c.conditions))
	if err != nil {
		return countedWithRules{}, err
	}
	return countedWithRules{Authorizer: countDecisions(string(apiserver.TypeWebhook), c.name, a), RuleResolver: a}, nil
}

// config is where the other server is, and how to log in there.
func (c connection) config() (*rest.Config, error) {
	if c.kubeconfig == "" {
		return rest.CopyConfig(c.client), nil
	}
	// The file may have credentials, and names the server that decides.
	if _, err := secretfile.Read(c.kubeconfig); err != nil {
		return nil, err
	}
	return kubeconfig.LoadKubeconfig(c.kubeconfig, nil)
}

// check reads what the connection needs: a kubeconfig, and the files that it names.
func (c connection) check() error {
	config, err := c.config()
	if err != nil {
		return err
	}
	if config.Host == "" {
		return errors.New("it has no URL of the authorization server")
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return err
	}
	_, _, err = rest.DefaultServerUrlFor(config)
	return err
}

// compilerOf returns nil when there is nothing to compile: making a compiler
// takes a while.
func compilerOf(conditions []apiserver.WebhookMatchCondition) cel.Compiler {
	if len(conditions) == 0 {
		return nil
	}
	return cel.NewDefaultCompiler()
}

// newDialer makes connections that can be closed all at once, over a dial
// function or over TCP.
func newDialer(dial connrotation.DialFunc) *connrotation.Dialer {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return connrotation.NewDialer(dial)
}

// measured are the metrics that kube-apiserver has of its webhooks.
type measured struct {
	metrics.NoopRequestMetrics // only kube-apiserver has those by status code
	metrics.WebhookMetrics
	cel.MatcherMetrics
}

func newMeasured() measured {
	return measured{WebhookMetrics: metrics.NewWebhookMetrics(), MatcherMetrics: cel.NewMatcherMetrics()}
}
