package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdclient"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

const (
	// defaultEndpoint is where etcd listens unless told otherwise.
	defaultEndpoint = "http://127.0.0.1:2379"
	// defaultDialTimeout is how long a start waits for an answer.
	defaultDialTimeout = 10 * time.Second
	// defaultRequestTimeout is how long a request waits for an answer.
	defaultRequestTimeout = 10 * time.Second
	// maxRedial is the longest pause before a member that is down is tried again,
	// and connectTimeout how long connecting to one may take.
	maxRedial      = 3 * time.Second
	connectTimeout = 5 * time.Second
	// probeTimeout is how long the search for the cause may take per member.
	probeTimeout = time.Second
	// keepAliveTime and keepAliveTimeout find a dead connection, with the
	// values of Kubernetes' own API server.
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// Cluster is an etcd cluster that runs somewhere else. A server uses one
// connection to it, whatever the number of its resources. Servers that share a
// cluster need different key prefixes: see controlplane.Builder.Prefix.
type Cluster struct {
	// Endpoints are the client URLs of the members, for example
	// "https://10.0.0.1:2379". Empty: "http://127.0.0.1:2379".
	Endpoints []string
	// CAFile has the certificates (PEM) that may have signed those of the
	// members. Empty: those the system trusts.
	CAFile string
	// CertFile and KeyFile have the certificate and key (PEM) with which the
	// server presents itself. They are read again for new connections. Empty:
	// it does not.
	CertFile, KeyFile string
	// TLS is the configuration to use in place of the files above. Nil: the
	// files.
	TLS *tls.Config
	// DialTimeout is how long a start waits for the cluster to answer. 0: 10 s.
	DialTimeout time.Duration
	// RequestTimeout is how long a request waits for the cluster, and a list for
	// each part of it, before a client is told to try again later. 0: 10 s.
	RequestTimeout time.Duration
}

var _ controlplane.Storage = Cluster{}

// Open implements controlplane.Storage.
func (c Cluster) Open() controlplane.Backend {
	if len(c.Endpoints) == 0 {
		c.Endpoints = []string{defaultEndpoint}
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, defaultDialTimeout)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, defaultRequestTimeout)
	return &cluster{description: c}
}

// String names the members.
func (c Cluster) String() string { return "etcd cluster " + strings.Join(c.Endpoints, ",") }

// Traits implements controlplane.Storage: servers with the same prefix are
// replicas of each other. etcd's own configuration decides what it syncs.
func (Cluster) Traits() controlplane.Traits {
	return controlplane.Traits{Engine: engine, Shared: true, MaxOps: maxOps, Durable: true}
}

// maxOps is how many operations etcd takes in a transaction unless told otherwise
// (--max-txn-ops).
const maxOps = 128

// cluster is a storage on a connection to an etcd cluster.
type cluster struct {
	description Cluster
	clients     etcdclient.Pool

	mu      sync.Mutex
	started bool
	base    *clientv3.Client
	remote  *etcdclient.Remote // of base
	kv      clientv3.KV
}

// Start implements controlplane.Backend.
func (s *cluster) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return fmt.Errorf("%s: started before; open the storage again", s.description)
	}
	s.started = true
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.description, errors.Join(err, s.hangUp()))
	}
	return nil
}

func (s *cluster) start(ctx context.Context) error {
	security, err := s.description.security()
	if err != nil {
		return err
	}
	s.base, err = clientv3.New(clientv3.Config{
		Endpoints:            s.description.Endpoints,
		TLS:                  security,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		PermitWithoutStream:  true,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(redial())},
		// Quiet: requests return what goes wrong.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	s.remote = etcdclient.NewRemote(s.base, s.description.RequestTimeout)
	s.kv = s.remote.KV()
	limited, cancel := context.WithTimeout(ctx, s.description.DialTimeout)
	defer cancel()
	// A read that needs a leader, so that an answer means a working cluster.
	if _, err := s.base.Get(limited, "health"); err != nil {
		return s.unreachable(ctx, security, err)
	}
	return s.checkVersion(limited)
}

// redial says when failed connections are tried again. By default gRPC waits up
// to two minutes, and does not use an etcd that is back sooner.
func redial() grpc.ConnectParams {
	b := backoff.DefaultConfig
	b.BaseDelay, b.MaxDelay = maxRedial/30, maxRedial
	return grpc.ConnectParams{Backoff: b, MinConnectTimeout: connectTimeout}
}

// unreachable says why the first read failed. The error of a call that timed
// out says nothing about the connections, so each endpoint is tried once by
// hand.
func (s *cluster) unreachable(ctx context.Context, security *tls.Config, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("connect: %w", context.Cause(ctx))
	}
	for _, endpoint := range s.description.Endpoints {
		if failed := probe(ctx, endpoint, security); failed != nil {
			return fmt.Errorf("no answer within %v (%w): %w; check that it runs, and that its address and the certificates are right",
				s.description.DialTimeout, err, failed)
		}
	}
	return fmt.Errorf("no answer within %v (%w); check that it has a leader and lets this server in",
		s.description.DialTimeout, err)
}

// probe opens a connection to an endpoint and closes it.
func probe(ctx context.Context, endpoint string, security *tls.Config) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Port() == "" {
		return nil // a form of address that only etcd's client knows
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var conn net.Conn
	if u.Scheme == "https" || security != nil {
		conn, err = (&tls.Dialer{Config: security}).DialContext(ctx, "tcp", u.Host)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	}
	if err != nil {
		return err
	}
	return conn.Close()
}

// checkVersion refuses an etcd whose progress notifications come in the wrong
// order, which API servers rely on (https://github.com/etcd-io/etcd/issues/15220
// and https://github.com/etcd-io/etcd/issues/17507). A member that is down is
// skipped.
func (s *cluster) checkVersion(ctx context.Context) error {
	for _, endpoint := range s.description.Endpoints {
		status, err := s.base.Status(ctx, endpoint)
		if err != nil {
			continue
		}
		if v, err := version.ParseSemantic(status.Version); err == nil && tooOld(v) {
			return fmt.Errorf("member %s is etcd %s, whose watches are unreliable; use 3.5.13, 3.4.31 or later", endpoint, v)
		}
	}
	return nil
}

func tooOld(v *version.Version) bool {
	if v.AtLeast(version.MustParseSemantic("3.5.0")) {
		return v.LessThan(version.MustParseSemantic("3.5.13"))
	}
	return v.LessThan(version.MustParseSemantic("3.4.31"))
}

// security returns the TLS configuration, or nil if none is needed.
func (c Cluster) security() (*tls.Config, error) {
	files := transport.TLSInfo{TrustedCAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, Logger: zap.NewNop()}
	hasFiles := c.CAFile != "" || c.CertFile != "" || c.KeyFile != ""
	switch {
	case c.TLS != nil && hasFiles:
		return nil, errors.New("both TLS and certificate files are set; use one of them")
	case c.TLS != nil:
		return c.TLS.Clone(), nil
	case (c.CertFile == "") != (c.KeyFile == ""):
		return nil, errors.New("only one of CertFile and KeyFile is set; a certificate needs its key")
	case hasFiles:
		security, err := files.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		return security, nil
	}
	return nil, nil
}

// Client implements controlplane.Backend.
func (s *cluster) Client() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		return nil, fmt.Errorf("%s: not connected", s.description)
	}
	c := clientv3.NewCtxClient(context.Background())
	c.KV = s.kv
	c.Watcher = clientv3.NewWatcher(s.base)
	c.Lease = s.remote.Lease()
	c.Cluster = s.base.Cluster
	c.Maintenance = s.base.Maintenance
	c.Auth = s.base.Auth
	return s.clients.Add(c)
}

// Measure returns what the metrics report: the size of the largest member that
// answers.
func (s *cluster) Measure(ctx context.Context) metrics.Storage {
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	if base == nil {
		return metrics.Storage{}
	}
	sizes := make([]*int64, len(s.description.Endpoints))
	var asked sync.WaitGroup
	for i, endpoint := range s.description.Endpoints {
		asked.Go(func() {
			if status, err := base.Status(ctx, endpoint); err == nil {
				sizes[i] = &status.DbSize
			}
		})
	}
	asked.Wait()
	var m metrics.Storage
	for _, size := range sizes {
		if size != nil && (m.File == nil || *size > *m.File) {
			m.File = size
		}
	}
	return m
}

// Defragment implements controlplane.Defragmenting: one member after the other. Each answers nothing meanwhile.
func (s *cluster) Defragment(ctx context.Context) error {
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	if base == nil {
		return fmt.Errorf("%s: not running", s.description)
	}
	for _, endpoint := range s.description.Endpoints {
		if _, err := base.Defragment(ctx, endpoint); err != nil {
			return fmt.Errorf("defragment %s: %w", endpoint, err)
		}
	}
	return nil
}

// Stop implements controlplane.Backend.
func (s *cluster) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	s.clients.Close()
	if err := s.hangUp(); err != nil {
		return fmt.Errorf("%s: %w", s.description, err)
	}
	return nil
}

func (s *cluster) hangUp() error {
	if s.base == nil {
		return nil
	}
	base := s.base
	s.base = nil
	if err := base.Close(); err != nil && !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		return err
	}
	return nil
}
