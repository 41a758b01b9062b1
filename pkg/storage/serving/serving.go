// Package serving serves a storage as an etcd v3 server, for API servers of others: a
// kube-apiserver on PostgreSQL, for example, without an etcd.
//
//	err := serving.Server{
//		Storage: postgres.DB{URL: "postgres://kube@db.example.com/kube"},
//		Listen:  "127.0.0.1:2379",
//		CertDir: "/var/lib/etcd-certificates",
//	}.Run(ctx)
//
// The kube-apiserver gets --etcd-servers=https://127.0.0.1:2379, and ca.crt, admin.crt and
// admin.key of the folder as --etcd-cafile, --etcd-certfile and --etcd-keyfile.
//
// Several servers may serve one storage that is Shared ([controlplane.Traits]): each sees the writes of all, in
// one order. docs/storage/serving.md has the part of etcd's API that is served.
package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/credentials"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

const (
	// DefaultListen is where an etcd listens, on this machine.
	DefaultListen = "127.0.0.1:2379"
	// unixScheme starts the address of a socket in the file system.
	unixScheme = "unix://"
	// drainTime is how long calls may go on when the server is to end.
	drainTime = 5 * time.Second
	// renewEvery is how often certificates of the folder are looked at, which are renewed
	// 30 days before they end.
	renewEvery = 12 * time.Hour
	// connectionAge is when clients are asked to connect anew: by then, a client whose
	// certificate has ended is gone.
	connectionAge = 12 * time.Hour
)

// Server is a storage that is served as an etcd v3 server.
type Server struct {
	// Storage is what is served. Required.
	Storage controlplane.Storage
	// Listen is the address to listen on; port 0 is one that the kernel chooses. It may
	// be a socket in the file system, "unix:///run/etcd.sock", which only its owner can
	// connect to, without TLS. Empty: [DefaultListen].
	Listen string
	// CertDir is a folder that keeps an authority, the server's certificate, and one for
	// clients (admin.crt, admin.key). What is missing is made, and renewed in time.
	CertDir string
	// Hosts are names and addresses by which clients reach the server, beside the one it
	// listens at and this machine's own: they are in the certificate of CertDir.
	Hosts []string
	// CertFile and KeyFile have the server's certificate and key (PEM), and ClientCAFile the authorities of
	// its clients, in place of CertDir. They are read again for each connection.
	CertFile, KeyFile, ClientCAFile string
	// Ready is called when the server serves, with its URL. Nil: nobody is.
	Ready func(url string)
}

// Run serves until the context ends. Without TLS it serves a socket in the file system
// only: whoever reaches an etcd can read and write all of it.
func (s Server) Run(ctx context.Context) (err error) {
	if s.Storage == nil {
		return errors.New("serve a storage: there is none (Storage)")
	}
	s.Listen = cmp.Or(s.Listen, DefaultListen)
	config, err := s.tls(ctx)
	if err != nil {
		return err
	}
	listener, url, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	b := s.Storage.Open()
	defer func() { err = errors.Join(err, b.Stop(context.WithoutCancel(ctx))) }()
	if err := b.Start(ctx); err != nil {
		return err
	}
	c, err := b.Client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // its error only says that it was closed
	if s.CertDir != "" {
		over, end := context.WithCancel(ctx)
		renewed := make(chan struct{})
		go func() {
			defer close(renewed)
			s.renew(over)
		}()
		defer func() { end(); <-renewed }()
	}
	return s.serve(ctx, listener, url, b, s.server(b, c, url, config))
}

// server makes the server of an open storage.
func (s Server) server(b controlplane.Backend, c *clientv3.Client, url string, config *tls.Config) *etcdserve.Server {
	id := fnv.New64a()
	_, _ = id.Write([]byte(url)) // which never fails
	view := &etcdserve.View{Client: c, Open: b.Client, ID: id.Sum64(), Keeper: etcdserve.Everything{Client: c}}
	o := etcdserve.Options{ConnectionAge: connectionAge, Endpoints: func() []string { return []string{url} }}
	if config != nil {
		o.Credentials = credentials.NewTLS(config)
	}
	return etcdserve.New(func(context.Context) (*etcdserve.View, error) { return view, nil }, o)
}

// serve serves until the context ends, or the storage or the listener fails.
func (s Server) serve(ctx context.Context, l net.Listener, url string, b controlplane.Backend, server *etcdserve.Server) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if s.Ready != nil {
		s.Ready(url)
	}
	var ended <-chan struct{}
	failed := func() error { return nil }
	if e, ok := b.(controlplane.Ending); ok {
		ended, failed = e.Done(), e.Err
	}
	var err error
	select {
	case <-ctx.Done():
		server.End(drainTime)
	case <-ended:
		err = fmt.Errorf("the storage has ended: %w", failed())
		server.Stop()
	case err = <-served:
		return fmt.Errorf("serve at %s: %w", url, err)
	}
	<-served //nolint:errcheck // it says that it was ended
	return err
}

// tls returns how connections are secured, nil: by the mode of a socket.
func (s Server) tls(ctx context.Context) (*tls.Config, error) {
	files := transport.TLSInfo{CertFile: s.CertFile, KeyFile: s.KeyFile, TrustedCAFile: s.ClientCAFile, ClientCertAuth: true}
	given := s.CertFile != "" || s.KeyFile != "" || s.ClientCAFile != ""
	switch {
	case s.CertDir != "" && given:
		return nil, errors.New("certificates are in a folder (CertDir), or in files (CertFile, KeyFile, ClientCAFile): give one of both")
	case s.CertDir != "":
		if err := s.load(ctx); err != nil {
			return nil, err
		}
		files.CertFile, files.KeyFile, files.TrustedCAFile = s.file("server.crt"), s.file("server.key"), s.file("ca.crt")
	case !given && strings.HasPrefix(s.Listen, unixScheme):
		return nil, nil
	case s.CertFile == "" || s.KeyFile == "" || s.ClientCAFile == "":
		return nil, errors.New("whoever reaches an etcd can read and write all of it: give it certificates, in a folder (CertDir), " +
			"in files (CertFile, KeyFile and ClientCAFile), or have it listen on a unix socket")
	}
	config, err := files.ServerConfig()
	if err != nil {
		return nil, fmt.Errorf("certificates of the endpoint: %w", err)
	}
	return config, nil
}

func (s Server) file(name string) string { return strings.TrimSuffix(s.CertDir, "/") + "/" + name }

// load makes what is missing in the folder, and renews what ends soon.
func (s Server) load(ctx context.Context) error {
	hosts := s.Hosts
	if !strings.HasPrefix(s.Listen, unixScheme) {
		e, err := pki.ParseEndpoint(s.Listen)
		if err != nil {
			return err
		}
		hosts = slices.Concat(e.Hosts, hosts)
	}
	_, err := pki.Dir(s.CertDir).Load(ctx, pki.Request{Hosts: hosts, User: "etcd-client"})
	return err
}

// renew renews the certificates of the folder in time, until the context ends. Each connection
// gets those that the folder then has.
func (s Server) renew(ctx context.Context) {
	for {
		select {
		case <-time.After(renewEvery):
		case <-ctx.Done():
			return
		}
		if err := s.load(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to renew the certificates of the endpoint, will try again", "folder", s.CertDir)
		}
	}
}

// listen opens the listener, and returns the URL that clients connect to.
func (s Server) listen(ctx context.Context) (l net.Listener, url string, err error) {
	path, isUnix := strings.CutPrefix(s.Listen, unixScheme)
	if !isUnix {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: stop who listens there, or choose another port (0 picks a free one)", err)
		}
		if err != nil {
			return nil, "", fmt.Errorf("listen at %s: %w", s.Listen, err)
		}
		host, _, _ := net.SplitHostPort(s.Listen) // what was listened at is one
		_, port, _ := net.SplitHostPort(l.Addr().String())
		e, err := pki.ParseEndpoint(net.JoinHostPort(host, port))
		if err != nil {
			_ = l.Close() // the error above is the one to tell
		}
		return l, e.URL, err
	}
	l, err = listenUnix(ctx, path)
	return l, s.Listen, err
}

// listenUnix makes a socket that only its owner can connect to. One that nobody serves
// any more, after a crash, makes way.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("listen at %s%s: another process serves it: stop it, or choose another path", unixScheme, path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path) // or listening says why it cannot be used
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s%s: %w", unixScheme, path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listen at %s%s: %w", unixScheme, path, err)
	}
	return l, nil
}
