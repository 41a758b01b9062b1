package envtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// The values of --authorization-mode.
const (
	modeRBAC        = "RBAC"
	modeWebhook     = "Webhook"
	modeAlwaysAllow = "AlwaysAllow"
	modeAlwaysDeny  = "AlwaysDeny"
)

// accessParts returns the parts for serving, authentication and authorization.
func (s *apiServer) accessParts(private files, log io.Writer) ([]controlplane.Part, error) {
	parts, err := s.serving(private)
	if err != nil {
		return nil, err
	}
	callers, err := s.callers(private, log)
	if err != nil {
		return nil, err
	}
	authorizers, err := s.authorizers(private, log)
	if err != nil {
		return nil, err
	}
	return append(append(parts, callers...), authorizers...), nil
}

// serving returns the serving certificates. Keys are copied: kube-apiserver
// accepts keys with any file mode.
func (s *apiServer) serving(private files) ([]controlplane.Part, error) {
	cert, key, err := s.servingPair()
	if err != nil {
		return nil, err
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if key, err = private.copy("serving.key", key); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	parts := []controlplane.Part{authn.ServingCertificate{CertFile: cert, KeyFile: key}}
	for i, pair := range s.sni {
		if key, err = private.copy(fmt.Sprintf("sni-%d.key", i), pair.KeyFile); err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		parts = append(parts, authn.ServingCertificate{CertFile: pair.CertFile, KeyFile: key, Names: pair.Names})
	}
	return parts, nil
}

// callers returns the authenticators, in the order of kube-apiserver.
func (s *apiServer) callers(private files, log io.Writer) ([]controlplane.Part, error) {
	var parts []controlplane.Part
	if s.authn.proxy.ClientCAFile != "" {
		parts = append(parts, s.authn.proxy)
	}
	if s.authn.clientCA != "" {
		parts = append(parts, authn.ClientCA{File: s.authn.clientCA})
	}
	if s.authn.tokens != "" {
		file, err := private.copy("tokens.csv", s.authn.tokens)
		if err != nil {
			return nil, fmt.Errorf("--token-auth-file: %w", err)
		}
		parts = append(parts, authn.Tokens{File: file})
	}
	tokens, err := s.account.tokens(private, log)
	if err != nil {
		return nil, err
	}
	parts = append(parts, tokens)
	if s.authn.config != "" {
		parts = append(parts, authn.JWT{ConfigFile: s.authn.config})
	}
	if s.authn.webhook != "" {
		file, err := private.copy("authentication.kubeconfig", s.authn.webhook)
		if err != nil {
			return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
		}
		parts = append(parts, authn.Webhook{ConfigFile: file})
	}
	switch {
	case s.authn.anonymous && s.isOpen():
		// kube-apiserver allows no anonymous requests here, but envtest asks
		// whether it is ready.
		parts = append(parts, authn.Anonymous{Paths: []string{"/healthz", "/livez", "/readyz", "/version"}})
	case s.authn.anonymous:
		parts = append(parts, controlplane.PartFunc(acceptAnonymous))
	}
	return parts, nil
}

// isOpen tells whether every caller may do everything.
func (s *apiServer) isOpen() bool {
	return s.authzConfig == "" && (len(s.modes) == 0 || has(s.modes, modeAlwaysAllow))
}

// acceptAnonymous authenticates callers without credentials as system:anonymous, at
// every path: the authorizers decide what they may do.
func acceptAnonymous(p *controlplane.Plan) error {
	known := anonymous.NewAuthenticator(nil)
	p.Authenticate("anonymous", authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		// Callers with unknown credentials are refused.
		if r.Header.Get("Authorization") != "" || r.TLS != nil && len(r.TLS.PeerCertificates) > 0 ||
			strings.Contains(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), "base64url.bearer.authorization.k8s.io.") {
			return nil, false, nil
		}
		return known.AuthenticateRequest(r)
	}))
	return nil
}

// tokens returns the part that issues and authenticates service account tokens.
func (a accountFlags) tokens(private files, log io.Writer) (controlplane.Part, error) {
	part := a.part
	if len(a.issuers) > 1 {
		warn(log, "--service-account-issuer: only the first one, %s, has an effect", a.issuers[0])
	}
	if len(a.issuers) > 0 {
		if u, err := url.Parse(a.issuers[0]); err != nil || u.Scheme != "https" {
			warn(log, "--service-account-issuer %q has no effect: it is not an https URL", a.issuers[0])
		} else {
			part.Issuer = a.issuers[0]
		}
	}
	if a.signing == "" {
		part.Dir = private.dir
		if len(a.keys) > 0 {
			warn(log, "--service-account-key-file has no effect without --service-account-signing-key-file")
		}
		return part, nil
	}
	var err error
	part.KeyFile, err = private.accountKeys(a.signing, a.keys)
	return part, err
}

// authorizers returns the authorizers that the flags name.
func (s *apiServer) authorizers(private files, log io.Writer) ([]controlplane.Part, error) {
	if s.authzConfig != "" {
		return []controlplane.Part{authz.Config{ConfigFile: s.authzConfig}}, nil
	}
	modes := s.modes
	if len(modes) == 0 {
		modes = []string{modeAlwaysAllow}
	}
	var parts []controlplane.Part
	for _, mode := range modes {
		switch mode {
		case modeRBAC:
			parts = append(parts, authz.RBAC{})
		case modeAlwaysAllow:
			parts = append(parts, always(mode, authz.Allow))
		case modeAlwaysDeny:
			parts = append(parts, always(mode, authz.NoOpinion))
		case modeWebhook:
			if s.authzWebhook == "" {
				return nil, errors.New("--authorization-mode Webhook needs --authorization-webhook-config-file")
			}
			file, err := private.copy("authorization.kubeconfig", s.authzWebhook)
			if err != nil {
				return nil, fmt.Errorf("--authorization-webhook-config-file: %w", err)
			}
			parts = append(parts, authz.Webhook{ConfigFile: file, FailurePolicy: authz.NoOpinion})
		default:
			warn(log, "--authorization-mode %s is not supported and has no effect", mode)
		}
	}
	return parts, nil
}

func always(name string, d authz.Decision) controlplane.Part {
	return authz.Func(strings.ToLower(name), func(context.Context, authz.Attributes) (authz.Decision, string, error) {
		return d, "", nil
	})
}
