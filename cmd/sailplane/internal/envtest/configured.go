package envtest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
)

// configured returns the configuration that the flags describe. What kube-apiserver
// takes and serve refuses is left out, with a warning.
func (s *apiServer) configured(private files, log io.Writer) (*config.Server, *config.Document, error) {
	d := standard()
	if err := s.given.Apply(d); err != nil {
		return nil, nil, err
	}
	c, err := d.Server()
	if err != nil {
		return nil, nil, err
	}
	if c.Storage.URL == "" {
		return nil, nil, errors.New("--etcd-servers is empty: name one, such as http://127.0.0.1:2379")
	}
	s.warnings(log)
	c.Listen = net.JoinHostPort(s.address, strconv.Itoa(s.port))
	c.Storage.Prefix = "/" + strings.Trim(c.Storage.Prefix, "/")
	c.Limits.Mode = "off" // kube-apiserver has none
	s.audited(c, log)
	s.authorized(c, log)
	s.admitted(c, log)
	if err := s.served(c, private); err != nil {
		return nil, nil, err
	}
	if err := s.tokens(c, private, log); err != nil {
		return nil, nil, err
	}
	return c, d, private.copies(c)
}

// audited leaves the audit log out where kube-apiserver would write nothing to it.
func (s *apiServer) audited(c *config.Server, log io.Writer) {
	if c.Audit.PolicyFile != "" && c.Audit.Path != "" {
		return
	}
	if c.Audit.Path != "" {
		warn(log, "--audit-log-path has no effect without --audit-policy-file")
	}
	c.Audit.Path = "none"
}

// authorized leaves out the modes that do not exist here, and says who may come
// without credentials: all, and the authorizers decide. Where everything is allowed
// they may ask whether the server is ready, as envtest does, and kube-apiserver lets
// them do nothing.
func (s *apiServer) authorized(c *config.Server, log io.Writer) {
	known := []string{server.ModeRBAC, server.ModeWebhook, server.ModeAlwaysAllow, server.ModeAlwaysDeny}
	c.Authorization.Modes = slices.DeleteFunc(c.Authorization.Modes, func(mode string) bool {
		if slices.Contains(known, mode) {
			return false
		}
		warn(log, "--authorization-mode %s is not supported and has no effect", mode)
		return true
	})
	open := c.Authorization.ConfigFile == "" && slices.Contains(c.Authorization.Modes, server.ModeAlwaysAllow)
	switch {
	case !s.anonymous:
		c.Authentication.AnonymousPaths = nil
	case !open:
		c.Authentication.AnonymousPaths = []string{"*"}
	}
}

// admitted leaves out the plugins that do not exist here, and those that are off in
// kube-apiserver unless they are enabled.
func (s *apiServer) admitted(c *config.Server, log io.Writer) {
	var names []string
	for _, p := range server.Plugins() {
		names = append(names, p.Name)
		if p.Off {
			c.Admission.Disable = append(c.Admission.Disable, p.Name)
		}
	}
	enable, disable := c.Admission.Enable, c.Admission.Disable
	c.Admission.Enable, c.Admission.Disable = nil, nil
	for _, name := range disable {
		// A plugin that does not exist is off anyway.
		if name = strings.TrimSpace(name); slices.Contains(names, name) {
			c.Admission.Disable = append(c.Admission.Disable, name)
		} else if slices.Contains(server.AlwaysOn(), name) {
			warn(log, "--disable-admission-plugins %s has no effect: it is always on", name)
		}
	}
	for _, name := range enable {
		if name = strings.TrimSpace(name); slices.Contains(names, name) {
			c.Admission.Enable = append(c.Admission.Enable, name)
		} else if !slices.Contains(server.AlwaysOn(), name) {
			warn(log, "--enable-admission-plugins %s has no effect: there is no such plugin", name)
		}
	}
}

// served names the serving certificates. Keys are copied: kube-apiserver accepts
// keys with any file mode.
func (s *apiServer) served(c *config.Server, private files) error {
	cert, key, err := s.servingPair(c)
	if err != nil {
		return err
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	if key, err = private.copy("serving.key", key); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	c.Serving.CertFile, c.Serving.KeyFile = cert, key
	for i := range c.Serving.Certificates {
		pair := &c.Serving.Certificates[i]
		if pair.KeyFile, err = private.copy(fmt.Sprintf("sni-%d.key", i), pair.KeyFile); err != nil {
			return fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
	}
	return nil
}

// tokens says who issues the tokens of service accounts, and which keys there are.
func (s *apiServer) tokens(c *config.Server, private files, log io.Writer) error {
	t := &c.Authentication.ServiceAccounts
	if len(s.issuers) > 1 {
		warn(log, "--service-account-issuer: only the first one, %s, has an effect", s.issuers[0])
	}
	if len(s.issuers) > 0 {
		if u, err := url.Parse(s.issuers[0]); err != nil || u.Scheme != "https" {
			warn(log, "--service-account-issuer %q has no effect: it is not an https URL", s.issuers[0])
		} else {
			t.Issuer = s.issuers[0]
		}
	}
	if t.SigningKeyFile == "" {
		if len(s.keys) > 0 {
			warn(log, "--service-account-key-file has no effect without --service-account-signing-key-file")
		}
		return nil
	}
	var err error
	t.SigningKeyFile, err = private.accountKeys(t.SigningKeyFile, s.keys)
	return err
}
