//go:build unix

package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is how long a borrower waits for what takes moments, on a busy machine.
const patience = 2 * time.Minute

// TestLent: servers that lend the storage that they share are one etcd to a borrower, and one of them may end at
// any time.
func TestLent(t *testing.T) {
	onEach(t, func(t *testing.T, f *fleet) {
		f.arguments = append(f.arguments, "--storage-api")
		a, b := f.launch(t, "a"), f.launch(t, "b")
		ready(t, a, b)
		lend(t, a, "one")
		one, other, both := borrow(t, "one", a), borrow(t, "one", b), borrow(t, "one", a, b)

		watch := other.Watch(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithRev(1))
		var revisions []int64
		for n := range 200 {
			writer, reader := one, other
			if n%3 == 2 {
				writer, reader = other, one
			}
			key := fmt.Sprintf("k%03d", n)
			put, err := writer.Put(t.Context(), key, "v")
			must(t, err)
			revisions = append(revisions, put.Header.Revision)
			got, err := reader.Get(t.Context(), key)
			if err != nil || len(got.Kvs) != 1 || got.Kvs[0].ModRevision != put.Header.Revision {
				t.Fatalf("the other server does not have what was acknowledged in %d: %v, %v", put.Header.Revision, got, err)
			}
		}
		seesAll(t, watch, revisions)
		agrees(t, one, other)

		killed(t, a, both, other)
		lend(t, b, "two") // by whichever server has the work now
		must(t, put(t, borrow(t, "two", b), "k", "v"))
		if _, err := b.kubectl(t, "delete", "etcdstorages", "one", "two", "--timeout="+patience.String()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := other.Get(ctx, "k", clientv3.WithPrefix()); err == nil {
			t.Errorf("a storage that is deleted answers %v", got)
		}
	})
}

// lend makes an EtcdStorage, and waits until it is ready.
func lend(t *testing.T, s *server, name string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "storage.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: storage.sailplane.dev/v1alpha1
kind: EtcdStorage
metadata: {name: %[1]s}
spec:
  clientCertificate: {secret: {namespace: default, name: %[1]s}}
  authority: {configMap: {namespace: default, name: %[1]s}}
`, name), 0o600))
	for _, arguments := range [][]string{
		{"create", "-f", file}, {"wait", "etcdstorage/" + name, "--for=condition=Ready", "--timeout=" + patience.String()},
	} {
		if _, err := s.kubectl(t, arguments...); err != nil {
			t.Fatal(err)
		}
	}
}

// borrow returns an etcd client for what servers lend, with what the last of them has written for it.
func borrow(t *testing.T, name string, servers ...*server) *clientv3.Client {
	t.Helper()
	var endpoints []string
	core := servers[len(servers)-1].client.CoreV1()
	for _, s := range servers {
		u, err := url.Parse(s.config.Host)
		must(t, err)
		endpoints = append(endpoints, "https://"+u.Host)
	}
	secret, err := core.Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	authority, err := core.ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority.Data["ca.crt"]))
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func put(t *testing.T, c *clientv3.Client, key, value string, options ...clientv3.OpOption) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := c.Put(ctx, key, value, options...)
	return err
}

// seesAll wants a watch to have one event of each revision, in order.
func seesAll(t *testing.T, watch clientv3.WatchChan, revisions []int64) {
	t.Helper()
	late := time.After(patience)
	for seen := 0; seen < len(revisions); {
		select {
		case r := <-watch:
			must(t, r.Err())
			for _, e := range r.Events {
				if e.Kv.ModRevision != revisions[seen] {
					t.Fatalf("event %d is of revision %d, want %d", seen, e.Kv.ModRevision, revisions[seen])
				}
				seen++
			}
		case <-late:
			t.Fatalf("the watch has %d of %d events", seen, len(revisions))
		}
	}
}

// agrees wants servers to have the same locks and leases.
func agrees(t *testing.T, one, other *clientv3.Client) {
	t.Helper()
	was, err := one.Get(t.Context(), "k000")
	must(t, err)
	unchanged := clientv3.Compare(clientv3.ModRevision("k000"), "=", was.Kvs[0].ModRevision)
	must(t, put(t, one, "k000", "changed"))
	r, err := other.Txn(t.Context()).If(unchanged).Then(clientv3.OpPut("k000", "lost")).Commit()
	if err != nil || r.Succeeded {
		t.Errorf("a write of what has changed on the other server: %+v, %v", r, err)
	}
	lease, err := one.Grant(t.Context(), 600)
	must(t, err)
	must(t, put(t, other, "leased", "x", clientv3.WithLease(lease.ID)))
	if err := put(t, other, "leased", "x", clientv3.WithLease(lease.ID+1)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("a lease that nobody was granted: %v", err)
	}
}

// killed kills a server while a client writes that knows both: what was acknowledged is there.
func killed(t *testing.T, victim *server, client, survivor *clientv3.Client) {
	t.Helper()
	acknowledged := map[string]string{}
	for n := range 300 {
		if n == 100 {
			victim.Kill()
		}
		key, value := fmt.Sprintf("w%03d", n%50), fmt.Sprint(n)
		within(t, patience, "a write at one of two servers", func(ctx context.Context) bool {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := client.Put(ctx, key, value)
			return err == nil
		})
		acknowledged[key] = value
	}
	got, err := survivor.Get(t.Context(), "w", clientv3.WithPrefix())
	must(t, err)
	for _, kv := range got.Kvs {
		if want := acknowledged[string(kv.Key)]; string(kv.Value) != want {
			t.Errorf("%s is %s, want %s", kv.Key, kv.Value, want)
		}
		delete(acknowledged, string(kv.Key))
	}
	for key := range acknowledged {
		t.Errorf("%s is lost", key)
	}
}
