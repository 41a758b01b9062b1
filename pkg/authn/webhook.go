package authn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	kubeconfig "k8s.io/apiserver/pkg/util/webhook"
	plugin "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
)

// webhookCacheTTL is kube-apiserver's --authentication-token-webhook-cache-ttl.
const webhookCacheTTL = 2 * time.Minute

// Webhook recognises callers by tokens that another server reviews. It sends that
// server TokenReviews of authentication.k8s.io/v1.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#webhook-token-authentication
type Webhook struct {
	// ConfigFile is a kubeconfig that says where the other server is and how to log in
	// there. TokenReviews are posted to the URL of its cluster as it stands. It is
	// read by Build and when a server starts. Required.
	ConfigFile string
	// CacheTTL is how long an answer is kept, yes or no. Empty: 2 minutes.
	CacheTTL time.Duration
	// Audiences are those this server answers to: the other server must confirm
	// one of them for a token. A token reviewed here for other audiences needs
	// one of those. Empty: the other server decides alone.
	Audiences []string
}

// PartName implements the name errors use.
func (Webhook) PartName() string { return "authn.Webhook" }

// Install declares the authenticator.
func (w Webhook) Install(p *controlplane.Plan) error {
	if w.ConfigFile == "" {
		return errors.New("field ConfigFile: is empty: name a kubeconfig of the server that reviews tokens")
	}
	if w.CacheTTL < 0 {
		return fmt.Errorf("field CacheTTL: %v: want a positive duration, or 0 for %v", w.CacheTTL, webhookCacheTTL)
	}
	if slices.Contains(w.Audiences, "") {
		return errors.New("field Audiences: an audience is empty")
	}
	p.Read(w.check)
	var known current[authenticator.Token]
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	name := "token webhook " + w.ConfigFile
	p.Work(controlplane.Work{Name: name, Stop: dialer.CloseAll, Start: func(context.Context, *controlplane.Plane) error {
		next, err := w.open(dialer)
		if err == nil {
			known.Store(&next)
		}
		return err
	}})
	p.Audiences(w.Audiences...)
	p.Authenticate(name, bearer(&known))
	return nil
}

// check reads the kubeconfig, and the files that it names.
func (w Webhook) check() error {
	config, err := kubeconfig.LoadKubeconfig(w.ConfigFile, nil)
	if err == nil {
		_, err = rest.TLSConfigFor(config)
	}
	if err == nil {
		_, _, err = rest.DefaultServerUrlFor(config)
	}
	if err != nil {
		return fmt.Errorf("field ConfigFile: %s: %w", w.ConfigFile, err)
	}
	return nil
}

// open makes the client of the other server. It connects when a token comes.
func (w Webhook) open(dialer *connrotation.Dialer) (authenticator.Token, error) {
	config, err := kubeconfig.LoadKubeconfig(w.ConfigFile, dialer.DialContext)
	if err != nil {
		return nil, err
	}
	config.Wrap(dialing.WithoutRedirects) // they would take tokens elsewhere
	reviewer, err := plugin.New(config, "v1", nil, *plugin.DefaultRetryBackoff())
	if err != nil {
		return nil, err
	}
	ttl := w.CacheTTL
	if ttl == 0 {
		ttl = webhookCacheTTL
	}
	cached := cache.New(reviewer, false, ttl, ttl)
	if len(w.Audiences) == 0 {
		return cached, nil
	}
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if _, asked := authenticator.AudiencesFrom(ctx); !asked {
			ctx = authenticator.WithAudiences(ctx, w.Audiences)
		}
		return cached.AuthenticateToken(ctx, token)
	}), nil
}
