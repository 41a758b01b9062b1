package kine

import (
	"errors"
	"net/url"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/tls"

	"github.com/sailplane-dev/sailplane/pkg/internal/remote"
)

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

// Remote says where a database is and how to log in to it.
type Remote struct {
	// URL is the address, for example "nats://user@10.0.0.1:4222". It may
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
func (r Remote) Timeout() time.Duration { return remote.Login(r).Timeout() }

// Name says where the database is, without credentials.
func (r Remote) Name(kind string) string { return remote.Login(r).Name(kind) }

// resolve returns the URL with the password in it, the configuration that all
// drivers share, and the forms of the password that must not appear anywhere.
func (r Remote) resolve(schemes []string) (*url.URL, drivers.Config, []string, error) {
	u, secrets, err := remote.Login(r).Resolve(schemes)
	if err != nil {
		return nil, drivers.Config{}, nil, err
	}
	return u, drivers.Config{
		Scheme:           u.Scheme,
		BackendTLSConfig: tls.Config{CAFile: r.CAFile, CertFile: r.CertFile, KeyFile: r.KeyFile},
		CompactTimeout:   compactTimeout, CompactMinRetain: compactRetain,
		CompactBatchSize: compactBatch, PollBatchSize: pollBatch, PollInterval: pollInterval,
	}, secrets, nil
}
