package server

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/sharing"
)

// authentication returns what proves the server to its clients, and them to it, in
// the order in which kube-apiserver asks.
func (b *build) authentication() controlplane.Part {
	var parts controlplane.Parts
	add := func(when bool, part controlplane.Part) {
		if when {
			parts = append(parts, part)
		}
	}
	a := b.Authentication
	p := a.Proxy
	add(p.ClientCAFile != "", authn.Proxy{
		ClientCAFile: p.ClientCAFile, AllowedNames: p.AllowedNames, UsernameHeaders: p.UsernameHeaders,
		GroupHeaders: p.GroupHeaders, UIDHeaders: p.UIDHeaders, ExtraHeaderPrefixes: p.ExtraHeaderPrefixes,
	})
	parts = append(parts, b.serving()...)
	add(a.ClientCAFile != "", authn.ClientCA{
		File: a.ClientCAFile, Users: a.ClientCAUsers, Groups: a.ClientCAGroups, RevokedFile: a.ClientCARevokedFile,
	})
	if a.ClientCAFile == "" && (len(a.ClientCAUsers) > 0 || len(a.ClientCAGroups) > 0 || a.ClientCARevokedFile != "") {
		b.wrong("authentication.clientCAFile",
			"it is missing: clientCAUsers, clientCAGroups and clientCARevokedFile are about its authorities")
	}
	add(a.TokenFile != "", authn.Tokens{File: a.TokenFile})
	parts = append(parts, b.serviceAccounts())
	add(a.ConfigFile != "", authn.JWT{ConfigFile: a.ConfigFile})
	if len(a.JWT) > 0 && a.ConfigFile != "" {
		b.wrong("authentication.jwt", "there is authentication.configFile, too: give one of them")
	}
	add(len(a.JWT) > 0 || b.live.follow && a.ConfigFile == "", authn.JWT{ConfigFile: b.at("authentication.jwt"), Read: b.live.issuers})
	add(a.Webhook.ConfigFile != "", authn.Webhook{ConfigFile: a.Webhook.ConfigFile, CacheTTL: a.Webhook.CacheTTL.Duration})
	switch {
	case slices.Contains(a.AnonymousPaths, everyPath):
		parts = append(parts, controlplane.PartFunc(acceptAnonymous))
	case len(a.AnonymousPaths) > 0:
		parts = append(parts, authn.Anonymous{Paths: a.AnonymousPaths})
	}
	return parts
}

// serving returns what the server proves itself with.
func (b *build) serving() controlplane.Parts {
	var parts controlplane.Parts
	if b.DataDir != "" {
		parts = append(parts, Administrator(b.Server))
	}
	if b.Storage.ShareKeyFile != "" {
		if b.DataDir == "" {
			b.wrong("storage.shareKeyFile", "without dataDir there is nothing to share")
		} else {
			parts = append(parts, sharing.Files{Dir: pkiDir(b.Server), ProxyDir: b.proxyDir(), KeyFile: b.Storage.ShareKeyFile})
		}
	}
	s := b.Serving
	if (s.CertFile == "") != (s.KeyFile == "") {
		b.wrong("serving.certFile", "set serving.certFile and serving.keyFile, or neither")
	}
	if s.CertFile != "" {
		parts = append(parts, authn.ServingCertificate{CertFile: s.CertFile, KeyFile: s.KeyFile})
	} else if b.DataDir == "" {
		b.wrong("serving.certFile", "it is missing: without a data directory the server has no certificate of its own")
	}
	for _, c := range s.Certificates {
		parts = append(parts, authn.ServingCertificate{CertFile: c.CertFile, KeyFile: c.KeyFile, Names: c.Names})
	}
	return parts
}

// longestToken is the longest lifetime that may be requested, 2^32 s.
const longestToken = 1 << 32 * time.Second

// serviceAccounts returns the part that issues and accepts their tokens.
func (b *build) serviceAccounts() controlplane.Part {
	s := b.Authentication.ServiceAccounts
	part := serviceaccount.Tokens{
		KeyFile: s.SigningKeyFile, Issuer: s.Issuer, Audiences: s.Audiences,
		MaxExpiration: cmp.Or(s.MaxTokenExpiration.Duration, longestToken),
	}
	if part.KeyFile == "" {
		part.Dir = b.in("pki")
	}
	return part
}

// everyPath in authentication.anonymousPaths leaves all to the authorizers.
const everyPath = "*"

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
