package kine

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/tls"

	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// defaultDialTimeout is how long a start waits for an answer.
const defaultDialTimeout = 10 * time.Second

// The settings of kine's compaction. The API server decides when to compact.
const (
	compactTimeout = 30 * time.Second
	// compactRetain keeps the newest row, whose ID is the current revision.
	compactRetain = 1
	compactBatch  = 1000
	pollBatch     = 500
	// pollInterval is how often a driver looks for writes of other servers.
	pollInterval = time.Second
)

// ErrRefused is the error of a Driver.Check that would fail again.
var ErrRefused = errors.New("refused")

// LimitsOfSQL are the Driver.Limits of PostgreSQL and MySQL, which assign
// revisions before their writes are visible.
const LimitsOfSQL = "a client that lists and then watches may miss writes that others make at the same time, an event may come " +
	"after the progress notification of its revision, a compaction may drop events that a watch has not received yet, " +
	"and the driver ends the process when it loses the database during a compaction; " +
	"see docs/storage/kine.md"

// Remote says where a database is and how to log in to it.
type Remote struct {
	// URL is the address, for example "postgres://user@10.0.0.1:5432/name". It may
	// have the password; special characters in it need percent-encoding.
	URL string
	// Password, or PasswordFile, has the password in place of the URL. Only its
	// owner and group may have access to the file; its last newline is ignored.
	Password, PasswordFile string
	// CAFile has the certificates (PEM) that may have signed that of the database.
	// Empty: what the URL says.
	CAFile string
	// CertFile and KeyFile have the certificate and key (PEM) to log in with.
	// Empty: none.
	CertFile, KeyFile string
	// DialTimeout is how long a start waits for the database. 0: 10 s.
	DialTimeout time.Duration
}

// Timeout is DialTimeout, or its default.
func (r Remote) Timeout() time.Duration {
	return cmp.Or(r.DialTimeout, defaultDialTimeout)
}

// Name says where the database is, without credentials.
func (r Remote) Name(kind string) string {
	u, err := r.parse()
	if err != nil {
		return kind
	}
	return kind + " at " + u.Host + u.Path
}

// resolve returns the URL with the password in it, the configuration that all
// drivers share, and the forms of the password that must not appear anywhere.
func (r Remote) resolve(schemes []string) (*url.URL, drivers.Config, []string, error) {
	u, err := r.parse()
	if err != nil {
		return nil, drivers.Config{}, nil, err
	}
	if !slices.Contains(schemes, u.Scheme) {
		return nil, drivers.Config{}, nil, fmt.Errorf("the URL must begin with %s://", schemes[0])
	}
	if err := r.setPassword(u); err != nil {
		return nil, drivers.Config{}, nil, err
	}
	config := drivers.Config{
		Scheme:           u.Scheme,
		BackendTLSConfig: tls.Config{CAFile: r.CAFile, CertFile: r.CertFile, KeyFile: r.KeyFile},
		CompactTimeout:   compactTimeout, CompactMinRetain: compactRetain,
		CompactBatchSize: compactBatch, PollBatchSize: pollBatch, PollInterval: pollInterval,
	}
	if (r.CertFile == "") != (r.KeyFile == "") {
		return nil, config, nil, errors.New("only one of CertFile and KeyFile is set; a certificate needs its key")
	}
	return u, config, secrets(u), nil
}

// parse reads the URL. Its error quotes nothing of it: if the URL cannot be
// read, any part may belong to the password.
func (r Remote) parse() (*url.URL, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.User == nil && strings.Contains(r.URL, "@") {
		return nil, errors.New(
			"the URL cannot be read: special characters in the user and the password must be percent-encoded")
	}
	return u, nil
}

func (r Remote) setPassword(u *url.URL) error {
	password := r.Password
	if r.PasswordFile != "" {
		content, err := secretfile.Read(r.PasswordFile)
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

// secrets are the forms in which the password of a URL may appear.
func secrets(u *url.URL) []string {
	password, _ := u.User.Password()
	if password == "" {
		return nil
	}
	_, encoded, _ := strings.Cut(u.User.String(), ":")
	return []string{password, encoded, url.QueryEscape(password), url.PathEscape(password)}
}

// redact returns err, or an error with the same text without the secrets, which
// unwraps to nothing.
func redact(err error, secrets []string) error {
	text := err.Error()
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "xxxxx")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
