package envtest

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
)

// files writes files that only their owner may read.
type files struct{ dir string }

// write writes the content to a file and returns its path.
func (f files) write(name string, content []byte) (string, error) {
	path := filepath.Join(f.dir, name)
	return path, os.WriteFile(path, content, 0o600)
}

// copy copies a file and returns the path of the copy.
func (f files) copy(name, from string) (string, error) {
	content, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	return f.write(name, content)
}

// copies copies the files that parts refuse if others may read them.
func (f files) copies(c *config.Server) error {
	for flag, file := range map[string]*string{
		"token-auth-file":                          &c.Authentication.TokenFile,
		"authentication-token-webhook-config-file": &c.Authentication.Webhook.ConfigFile,
		"authorization-webhook-config-file":        &c.Authorization.WebhookConfigFile,
		"encryption-provider-config":               &c.Encryption.ConfigFile,
	} {
		if *file == "" {
			continue
		}
		copied, err := f.copy(flag, *file)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		*file = copied
	}
	return nil
}

// accountKeys writes the key that signs tokens and those that verify them,
// which may be in certificates, to a file.
func (f files) accountKeys(signing string, verifying []string) (string, error) {
	all, err := os.ReadFile(signing)
	if err != nil {
		return "", fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	for _, file := range verifying {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return "", fmt.Errorf("--service-account-key-file: %w", err)
		}
		for _, key := range keys {
			der, err := x509.MarshalPKIXPublicKey(key)
			if err != nil {
				return "", fmt.Errorf("--service-account-key-file %s: %w", file, err)
			}
			all = append(bytes.TrimSpace(all), '\n')
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der})...)
		}
	}
	return f.write("service-account.key", all)
}

// servingPair returns the files of the certificate and its key: those of the
// flags, or those in the certificate directory, created if missing, as in
// kube-apiserver.
func (s *apiServer) servingPair(c *config.Server) (cert, key string, err error) {
	if c.Serving.CertFile != "" || c.Serving.KeyFile != "" {
		return c.Serving.CertFile, c.Serving.KeyFile, nil
	}
	cert, key = filepath.Join(s.certDir, "apiserver.crt"), filepath.Join(s.certDir, "apiserver.key")
	if _, err := os.Stat(cert); !errors.Is(err, os.ErrNotExist) {
		return cert, key, err
	}
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return "", "", fmt.Errorf("make a serving certificate: %w", err)
	}
	if err := os.WriteFile(key, keyPEM, 0o600); err != nil {
		return "", "", fmt.Errorf("--cert-dir: %w", err)
	}
	if err := os.WriteFile(cert, certPEM, 0o600); err != nil {
		return "", "", fmt.Errorf("--cert-dir: %w", err)
	}
	return cert, key, nil
}
