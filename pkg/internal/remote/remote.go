// Package remote is how to reach and log in to a database, and how not to say its password.
package remote

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// defaultDialTimeout is how long a start waits for an answer.
const defaultDialTimeout = 10 * time.Second

// Login says where a database is and how to log in to it. The fields are those that
// descriptions of storages have.
type Login struct {
	URL                       string
	Password, PasswordFile    string
	CAFile, CertFile, KeyFile string
	DialTimeout               time.Duration
}

// Timeout is DialTimeout, or its default.
func (l Login) Timeout() time.Duration { return cmp.Or(l.DialTimeout, defaultDialTimeout) }

// Name says where the database is, without credentials.
func (l Login) Name(kind string) string {
	u, err := l.parse()
	if err != nil {
		return kind
	}
	return kind + " at " + u.Host + u.Path
}

// Resolve returns the URL with the password in it, and the forms of the password that must not
// appear anywhere. A password file is read each time.
func (l Login) Resolve(schemes []string) (*url.URL, []string, error) {
	u, err := l.parse()
	if err != nil {
		return nil, nil, err
	}
	if !slices.Contains(schemes, u.Scheme) {
		return nil, nil, fmt.Errorf("the URL must begin with %s://", schemes[0])
	}
	if (l.CertFile == "") != (l.KeyFile == "") {
		return nil, nil, errors.New("only one of CertFile and KeyFile is set; a certificate needs its key")
	}
	if err := l.setPassword(u); err != nil {
		return nil, nil, err
	}
	return u, secrets(u), nil
}

// parse reads the URL. Its error quotes nothing of it: if the URL cannot be
// read, any part may belong to the password.
func (l Login) parse() (*url.URL, error) {
	u, err := url.Parse(l.URL)
	if err != nil || u.User == nil && strings.Contains(l.URL, "@") {
		return nil, errors.New(
			"the URL cannot be read: special characters in the user and the password must be percent-encoded")
	}
	return u, nil
}

func (l Login) setPassword(u *url.URL) error {
	password := l.Password
	if l.PasswordFile != "" {
		content, err := secretfile.Read(l.PasswordFile)
		if err != nil {
			return fmt.Errorf("password file: %w", err)
		}
		if password != "" {
			return errors.New("both Password and PasswordFile are set; use one of them")
		}
		password = strings.TrimRight(string(content), "\r\n")
	}
	if password == "" {
		return nil
	}
	if u.User.Username() == "" {
		return errors.New("there is a password but no user: name the user in the URL, as in scheme://user@host")
	}
	if _, found := u.User.Password(); found {
		return errors.New("the URL has a password, and Password or PasswordFile is set too; use one of them")
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return nil
}

// TLS returns how to connect to a server of a name with the certificates, which are read again
// for each connection that uses what it returns; nil if there are none.
func (l Login) TLS(serverName string) (*tls.Config, error) {
	if l.CAFile == "" && l.CertFile == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if l.CAFile != "" {
		pool, err := cert.NewPool(l.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificates of the CA: %w", err)
		}
		c.RootCAs = pool
	}
	if l.CertFile != "" {
		own, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate to log in with: %w", err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// secrets are the forms in which the password of a URL may appear.
func secrets(u *url.URL) []string {
	password, _ := u.User.Password()
	if password == "" {
		return nil
	}
	_, encoded, _ := strings.Cut(u.User.String(), ":")
	return []string{password, encoded, url.QueryEscape(password), url.PathEscape(password)}
}

// Redact returns err, or an error with the same text without the secrets, which
// unwraps to nothing.
func Redact(err error, secrets []string) error {
	text := err.Error()
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "xxxxx")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
