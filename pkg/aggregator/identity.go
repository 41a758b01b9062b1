package aggregator

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// proxyName is the common name of the certificate by which other servers know this one.
	proxyName = "sailplane-front-proxy"
	// memoryLife is how long it is valid when nothing of it is kept.
	memoryLife = 5 * 365 * 24 * time.Hour
)

// identity is how this server proves to others that it hands requests on. It is made when it
// is first needed.
type identity struct {
	dir     string
	mu      sync.Mutex
	now     atomic.Pointer[proxyCertificate]
	changed signal.Change // the first time, too
}

// proxyCertificate is a client certificate, and who signed it.
type proxyCertificate struct {
	tls.Certificate
	authority []byte // PEM
	renew     time.Time
}

// get returns the certificate, and makes one if there is none.
func (i *identity) get(ctx context.Context) (*proxyCertificate, error) {
	if now := i.now.Load(); now != nil {
		return now, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := i.now.Load(); now != nil {
		return now, nil
	}
	return i.load(ctx)
}

// load reads the certificate, or makes what is missing or due.
func (i *identity) load(ctx context.Context) (*proxyCertificate, error) {
	request := pki.Request{User: proxyName, Groups: []string{"system:front-proxy"}}
	if i.dir == "" {
		request.Lifetime = memoryLife // it would come with another authority
	}
	found, err := pki.Dir(i.dir).Load(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("certificate for the servers of APIServices: %w", err)
	}
	pair, err := tls.X509KeyPair(found.AdminCert, found.AdminKey)
	if err != nil {
		return nil, fmt.Errorf("certificate for the servers of APIServices: %w", err)
	}
	now := &proxyCertificate{Certificate: pair, authority: found.CA, renew: found.Renew}
	i.now.Store(now)
	i.changed.Announce()
	return now, nil
}

// present is a tls.Config.GetClientCertificate. It does not heed which authorities the server
// names: one that learns of this one's later verifies each request, and the connection stays.
func (i *identity) present(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	now, err := i.get(info.Context())
	if err != nil {
		return nil, err
	}
	return &now.Certificate, nil
}

// run renews the certificate, and follows its files, from when it is first needed until the
// context ends.
func (i *identity) run(ctx context.Context, _ *controlplane.Plane) error {
	if i.dir == "" {
		return nil
	}
	_ = i.changed.Await(ctx, func() bool { return i.now.Load() != nil }) // fails when the context ends
	if i.now.Load() == nil {
		return nil
	}
	state := func(dir string) ([]byte, error) {
		state, err := pki.Dir(dir).State()
		if time.Now().After(i.now.Load().renew) {
			state = append(state, "due"...)
		}
		return state, err
	}
	f := &follow.File{Source: follow.Source{What: "certificates", File: i.dir, Read: state, Use: func(ctx context.Context, _ []byte) error {
		_, err := i.load(ctx)
		return err
	}}}
	if now, err := state(i.dir); err == nil {
		f.Begun(now)
	}
	return f.Run(ctx)
}
