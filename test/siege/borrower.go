package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// callers is how many calls each connection of a borrower has at a time.
const callers = 50

// lend gives the attacker an EtcdStorage.
func lend(ctx context.Context, admin kubernetes.Interface) (certificate, key []byte, err error) {
	body := fmt.Sprintf(`{"apiVersion":"storage.sailplane.dev/v1alpha1","kind":"EtcdStorage","metadata":{"name":%[1]q},"spec":{`+
		`"clientCertificate":{"secret":{"namespace":%[1]q,"name":"etcd"}},"authority":{"configMap":{"namespace":%[1]q,"name":"etcd"}}}}`, attacker)
	err = admin.CoreV1().RESTClient().Post().AbsPath("/apis/storage.sailplane.dev/v1alpha1/etcdstorages").
		SetHeader("Content-Type", asJSON).Body([]byte(body)).Do(ctx).Error()
	if err != nil {
		return nil, nil, err
	}
	secret, err := until(ctx, func() (*corev1.Secret, error) {
		return admin.CoreV1().Secrets(attacker).Get(ctx, "etcd", metav1.GetOptions{})
	})
	if err != nil {
		return nil, nil, err
	}
	return secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], nil
}

// etcd returns a client of the attacker's EtcdStorage, with a connection of its own. Deaf, it reads no more than it has to
// for a connection.
func (t target) etcd(isDeaf bool) (*clientv3.Client, error) {
	pair, err := tls.X509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(t.CA)
	from := func(ctx context.Context, address string) (net.Conn, error) {
		c, err := attackersAddress().DialContext(ctx, "tcp", address)
		if err != nil || !isDeaf {
			return c, err
		}
		return &deaf{Conn: c, left: 16 << 10, closed: make(chan struct{})}, nil
	}
	return clientv3.New(clientv3.Config{
		Endpoints: []string{t.Base}, Logger: zap.NewNop(), MaxUnaryRetries: 1,
		TLS:         &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(from)},
	})
}

// deaf is a connection that is not read any more when so many bytes have come.
type deaf struct {
	net.Conn
	left   int
	closed chan struct{}
	once   sync.Once
}

// Read implements net.Conn.
func (d *deaf) Read(b []byte) (int, error) {
	if d.left <= 0 {
		<-d.closed
	}
	n, err := d.Conn.Read(b)
	d.left -= n
	return n, err
}

// Close implements net.Conn.
func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// borrower is an attack with an etcd client, after what it does at first.
type borrower struct {
	deaf  bool // it takes no answers
	first func(context.Context, *clientv3.Client) error
	over  func(context.Context, *clientv3.Client, int64) error
}

// borrowers are the attacks of who borrows storage, by name.
func borrowers() map[string]attack {
	value := strings.Repeat("x", 1000)
	all := map[string]attack{}
	for name, b := range map[string]borrower{
		"lent puts": {over: func(ctx context.Context, c *clientv3.Client, n int64) error {
			_, err := c.Put(ctx, fmt.Sprint("k", n%1000), value)
			return err
		}},
		"lent gets": {over: func(ctx context.Context, c *clientv3.Client, n int64) error {
			_, err := c.Get(ctx, fmt.Sprint("k", n%1000))
			return err
		}},
		"lent ranges": {first: fill, over: func(ctx context.Context, c *clientv3.Client, _ int64) error {
			_, err := c.Get(ctx, "\x00", clientv3.WithFromKey())
			return err
		}},
		"lent answers": {deaf: true, first: fill, over: func(ctx context.Context, c *clientv3.Client, n int64) error {
			_, err := c.Get(ctx, fmt.Sprintf("k0%d", n%10), clientv3.WithPrefix())
			return err
		}},
		"lent counts": {first: fill, over: func(ctx context.Context, c *clientv3.Client, _ int64) error {
			_, err := c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
			return err
		}},
		"lent transactions": {over: func(ctx context.Context, c *clientv3.Client, n int64) error {
			ops := make([]clientv3.Op, 128)
			for i := range ops {
				ops[i] = clientv3.OpPut(fmt.Sprint("t", (n+int64(i))%1000), "x")
			}
			_, err := c.Txn(ctx).Then(ops...).Commit()
			return err
		}},
		"lent watches": {over: func(ctx context.Context, c *clientv3.Client, n int64) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			r := <-c.Watch(ctx, fmt.Sprint("k", n%1000), clientv3.WithCreatedNotify())
			return r.Err()
		}},
		"lent progress": {over: func(ctx context.Context, c *clientv3.Client, _ int64) error { return c.RequestProgress(ctx) }},
		"lent compactions": {over: func(ctx context.Context, c *clientv3.Client, _ int64) error {
			_, err := c.Compact(ctx, 1)
			return err
		}},
		"lent refusals": {over: func(ctx context.Context, c *clientv3.Client, _ int64) error {
			_, err := c.AlarmList(ctx)
			return err
		}},
		"lent statuses": {over: func(ctx context.Context, c *clientv3.Client, _ int64) error {
			_, err := c.Status(ctx, c.Endpoints()[0])
			return err
		}},
	} {
		all[name] = attack{raw: func(a *army) (func(context.Context), error) { return a.borrow(b) }}
	}
	all["lent connections"] = attack{raw: func(a *army) (func(context.Context), error) {
		return a.each(1, func(ctx context.Context) {
			c, err := a.etcd(false)
			if err != nil {
				a.count("error")
				return
			}
			_, err = c.Get(ctx, "k")
			a.countCall(ctx, err)
			_ = c.Close() // its error only says that it was closed
		}), nil
	}}
	return all
}

// fill has something to read.
func fill(ctx context.Context, c *clientv3.Client) error {
	value := strings.Repeat("x", 8<<10)
	for n := range 1000 {
		if _, err := c.Put(ctx, fmt.Sprintf("k%04d", n), value); err != nil {
			return err
		}
	}
	return nil
}

// borrow makes clients, and what they do over and over.
func (a *army) borrow(b borrower) (func(context.Context), error) {
	if b.first != nil {
		c, err := a.etcd(false)
		if err != nil {
			return nil, err
		}
		if err := b.first(context.Background(), c); err != nil {
			return nil, err
		}
		_ = c.Close() // as above
	}
	var clients []*clientv3.Client
	for range a.clients {
		c, err := a.etcd(b.deaf)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	var n atomic.Int64
	attack := a.each(callers, func(ctx context.Context) {
		at := n.Add(1)
		a.countCall(ctx, b.over(ctx, clients[int(at)%len(clients)], at))
	})
	return func(ctx context.Context) {
		attack(ctx)
		for _, c := range clients {
			_ = c.Close() // as above
		}
	}, nil
}

// countCall counts an answer by its code.
func (a *army) countCall(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	var known interface {
		Code() interface{ String() string }
	}
	if errors.As(err, &known) {
		a.count(known.Code().String())
		return
	}
	a.count(status.Code(err).String())
}
