package security

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sailplane-dev/sailplane/pkg/storageapi"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// tenantWatches is how many watches a tenant of these tests may have.
const tenantWatches = 20

// TestTenants: who borrows storage gets nothing of anybody, and harms nobody.
func TestTenants(t *testing.T) {
	t.Parallel()
	limits := storageapi.Limits{Keys: 1000, Bytes: 8 << 20, Watches: tenantWatches, WritesPerSecond: 200}
	attack(t, serve(t, storageapi.EtcdStorages{Max: limits}), tenantAttempts())
}

func tenantAttempts() map[string]attempt {
	return map[string]attempt{
		"backups of others": {reason: "they have all that a tenant has, and replace it", try: func(t *testing.T, w *world) {
			v := w.borrow(t, "saved").client(t)
			if _, err := v.Put(t.Context(), "/registry/secret", treasure); err != nil {
				t.Fatal(err)
			}
			const of = "/apis/storage.sailplane.dev/v1alpha1/etcdstorages/saved"
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
				for _, path := range []string{of + "/backup", of + "/restore", of + "/backup/x"} {
					w.unauthorized(t, request{method: method, path: path})
					for name := range users() {
						w.forbidden(t, request{as: name, method: method, path: path})
					}
				}
			}
			w.must(t, request{as: admin, method: "POST", path: of + "/restore", body: treasure}, http.StatusBadRequest)
			if got, err := text(v.Get(t.Context(), "\x00", clientv3.WithFromKey())); !strings.Contains(got, treasure) {
				t.Errorf("the tenant has %s, %v", got, err)
			}
		}},
		"keys of others": {reason: "the keys of a tenant are all that there is", try: func(t *testing.T, w *world) {
			victim, thief := w.borrow(t, "victim"), w.borrow(t, "thief")
			v, c := victim.client(t), thief.client(t)
			if _, err := v.Put(t.Context(), "/registry/secret", treasure); err != nil {
				t.Fatal(err)
			}
			if got, err := text(v.Get(t.Context(), "\x00", clientv3.WithFromKey())); !strings.Contains(got, treasure) {
				t.Fatalf("the victim has %s, %v", got, err)
			}
			hers := clientv3.Compare(clientv3.CreateRevision("/registry/secret"), ">", 0)
			for name, get := range map[string]func() (string, error){
				"from the first key on": func() (string, error) { return text(c.Get(t.Context(), "\x00", clientv3.WithFromKey())) },
				"up to the last key": func() (string, error) {
					return text(c.Get(t.Context(), "\x00", clientv3.WithRange("\xff\xff\xff\xff")))
				},
				"backwards":           func() (string, error) { return text(c.Get(t.Context(), "z", clientv3.WithRange("a"))) },
				"above":               func() (string, error) { return text(c.Get(t.Context(), "../", clientv3.WithFromKey())) },
				"by the server's key": func() (string, error) { return text(c.Get(t.Context(), "/registry/secrets/vault/crown")) },
				"by its lent key": func() (string, error) {
					return text(c.Get(t.Context(), "/registry/.internal/lent//victim/k/registry/secret"))
				},
				"in a transaction": func() (string, error) {
					return text(c.Txn(t.Context()).If(hers).Then(clientv3.OpGet("\x00", clientv3.WithFromKey())).
						Else(clientv3.OpGet("\x00", clientv3.WithFromKey())).Commit())
				},
				"in a stream": func() (string, error) {
					chunks, err := c.GetStream(t.Context(), "\x00", clientv3.WithFromKey())
					if err != nil {
						return "", err
					}
					return text(clientv3.GetStreamToGetResponse(chunks))
				},
				"of the past": func() (string, error) {
					return text(c.Get(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(1)))
				},
				"of what is deleted": func() (string, error) {
					return text(c.Delete(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithPrevKV()))
				},
			} {
				if got, err := get(); strings.Contains(got, treasure) || err == nil && strings.Contains(got, "crown") {
					t.Errorf("%s: %s, %v", name, got, err)
				}
			}
			watch := c.Watch(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithPrevKV(), clientv3.WithRev(1))
			if _, err := v.Put(t.Context(), "/registry/secret", treasure+"2"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Put(t.Context(), "mine", "x"); err != nil {
				t.Fatal(err)
			}
			for seen := false; !seen; {
				r := <-watch
				if r.Canceled {
					t.Fatal(r.Err())
				}
				for _, e := range r.Events {
					seen = seen || string(e.Kv.Key) == "mine"
					if string(e.Kv.Key) != "mine" {
						t.Errorf("an event of %q: %q", e.Kv.Key, e.Kv.Value)
					}
				}
			}
			if got, err := text(v.Get(t.Context(), "/registry/secret")); err != nil || !strings.Contains(got, "2") {
				t.Errorf("the victim has %s, %v", got, err)
			}
		}},
		"certificates that are none": {reason: "only the authority of tenants names them", try: func(t *testing.T, w *world) {
			b := w.borrow(t, "named")
			forged := forgedFor(t, b.object)
			for name, certificate := range map[string]*tls.Certificate{"none": nil, "of itself": &forged, "of the administrator": &w.asAdmin(t).Certificates[0]} {
				if err := etcdAnswers(t, w, certificate); err == nil {
					t.Errorf("certificate %s: the endpoint answers", name)
				}
			}
			// And with a tenant's there is no API, but a gRPC server.
			resp, err := w.client(t, &b.certificate).Get(w.base + open)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnsupportedMediaType {
				t.Errorf("a tenant asks the API: %s", resp.Status)
			}
		}},
		"leases of others": {reason: "a lease is known by who was granted it", try: func(t *testing.T, w *world) {
			a, b := w.borrow(t, "lessee").client(t), w.borrow(t, "other").client(t)
			lease, err := a.Grant(t.Context(), 600)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []clientv3.LeaseID{lease.ID, lease.ID + 1, 1, -1} {
				if _, err := b.Put(t.Context(), "x", "y", clientv3.WithLease(id)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
					t.Errorf("lease %d: %v, want that there is none", id, err)
				}
			}
		}},
		"large values": {reason: "what is large costs everybody", try: func(t *testing.T, w *world) {
			c := w.borrow(t, "large").client(t)
			for _, size := range []int{2 << 20, 8 << 20} {
				if _, err := c.Put(t.Context(), "x", strings.Repeat("x", size)); err == nil {
					t.Errorf("a value of %d bytes is taken", size)
				}
			}
			many := make([]clientv3.Op, 129)
			for i := range many {
				many[i] = clientv3.OpPut(fmt.Sprint(i), "x")
			}
			if _, err := c.Txn(t.Context()).Then(many...).Commit(); !errors.Is(err, rpctypes.ErrTooManyOps) {
				t.Errorf("129 operations: %v", err)
			}
		}},
		"10,000 watches": {reason: "each costs memory", try: func(t *testing.T, w *world) {
			c := w.borrow(t, "watching").client(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			var watching sync.WaitGroup
			begun := 0
			for range 100 {
				watching.Go(func() {
					for range 100 {
						r := <-c.Watch(ctx, "x", clientv3.WithCreatedNotify())
						mu.Lock()
						if r.Created && !r.Canceled {
							begun++
						}
						mu.Unlock()
					}
				})
			}
			watching.Wait()
			if begun > tenantWatches {
				t.Errorf("%d watches are open, and %d are allowed", begun, tenantWatches)
			}
		}},
		"calls that are not promised": {reason: "nobody is to rely on them", try: func(t *testing.T, w *world) {
			c := w.borrow(t, "calling").client(t)
			for name, call := range map[string]func() error{
				"auth":     func() error { _, err := c.AuthEnable(t.Context()); return err },
				"users":    func() error { _, err := c.UserAdd(t.Context(), "root", "x"); return err },
				"members":  func() error { _, err := c.MemberRemove(t.Context(), 1); return err },
				"alarms":   func() error { _, err := c.AlarmList(t.Context()); return err },
				"hash":     func() error { _, err := c.HashKV(t.Context(), w.base, 0); return err },
				"leases":   func() error { _, err := c.Leases(t.Context()); return err },
				"snapshot": func() error { return read(c.Snapshot(t.Context())) },
			} {
				if err := call(); status.Code(err) != codes.Unimplemented {
					t.Errorf("%s: %v, want Unimplemented", name, err)
				}
			}
		}},
		"malformed gRPC": {reason: "what cannot be read ends the call", try: func(t *testing.T, w *world) {
			b := w.borrow(t, "malformed")
			client := &http.Client{Timeout: limit, Transport: &http.Transport{
				TLSClientConfig: w.tls(&b.certificate, "h2"), ForceAttemptHTTP2: true,
			}}
			defer client.CloseIdleConnections()
			for _, body := range []string{"", "\x00", "\x00\x00\x00\x00\x05abcde", "\x01\xff\xff\xff\xff", "\x00\x7f\xff\xff\xffx", strings.Repeat("\xff", 1<<16)} {
				for _, method := range []string{"KV/Range", "KV/Txn", "Watch/Watch", "Lease/LeaseGrant", "KV/None", "None/None", "../etcdserverpb.KV/Range"} {
					r, err := http.NewRequestWithContext(t.Context(), "POST", w.base+"/etcdserverpb."+method, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/grpc")
					resp, err := client.Do(r)
					if err != nil {
						continue
					}
					got, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
					resp.Body.Close()
					if resp.Trailer.Get("Grpc-Status") == "0" && len(got) > 0 && body != "" {
						t.Errorf("%s with %q: %q", method, short(body), got)
					}
				}
			}
			if _, err := b.client(t).Put(t.Context(), "x", "y"); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		}},
		"writes without end": {reason: "they take time from everybody", try: func(t *testing.T, w *world) {
			w.besiege(t, "flooding", func(ctx context.Context, c *clientv3.Client, n int) {
				_, _ = c.Put(ctx, fmt.Sprint("k", n%100), strings.Repeat("x", 1000))
			})
		}},
		"refused calls without end": {reason: "a refusal takes time, too", try: func(t *testing.T, w *world) {
			w.besiege(t, "insisting", func(ctx context.Context, c *clientv3.Client, _ int) { _, _ = c.AlarmList(ctx) })
		}},
	}
}

// besiege has a tenant call without end, while others go on.
func (w *world) besiege(t *testing.T, name string, call func(context.Context, *clientv3.Client, int)) {
	t.Helper()
	b := w.borrow(t, name)
	ctx, cancel := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	for range 8 {
		c := b.client(t)
		for range 100 {
			flooding.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					call(ctx, c, n)
				}
			})
		}
	}
	for range 50 {
		w.must(t, request{as: "reader", method: "GET", path: open}, http.StatusOK)
	}
	cancel()
	flooding.Wait()
}

// borrower is a tenant.
type borrower struct {
	world       *world
	object      *v1alpha1.EtcdStorage
	certificate tls.Certificate
}

// borrow makes an EtcdStorage, and returns its borrower.
func (w *world) borrow(t *testing.T, name string) *borrower {
	t.Helper()
	const all = "/apis/storage.sailplane.dev/v1alpha1/etcdstorages"
	body := fmt.Sprintf(`{"apiVersion":"storage.sailplane.dev/v1alpha1","kind":"EtcdStorage","metadata":{"name":%q},"spec":{`+
		`"clientCertificate":{"secret":{"namespace":"tenant","name":%q}},"authority":{"configMap":{"namespace":"tenant","name":%q}}}}`,
		name, "etcd-"+name, "etcd-"+name)
	w.must(t, request{as: admin, method: "POST", path: all, body: body}, http.StatusCreated)
	b := &borrower{world: w}
	events := json.NewDecoder(w.stream(t, request{as: admin, method: "GET", path: all + "?watch=true&fieldSelector=metadata.name%3D" + name}))
	for ready := false; !ready; {
		var e struct{ Object *v1alpha1.EtcdStorage }
		if err := events.Decode(&e); err != nil {
			t.Fatalf("EtcdStorage %s is not ready: %v: %+v", name, err, b.object)
		}
		b.object = e.Object
		ready = meta.IsStatusConditionTrue(b.object.Status.Conditions, v1alpha1.ConditionReady)
	}
	var secret corev1.Secret
	w.read(t, tenant+"/secrets/etcd-"+name, &secret)
	var err error
	if b.certificate, err = tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		t.Fatal(err)
	}
	return b
}

// client is a raw etcd client of the tenant.
func (b *borrower) client(t *testing.T) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{b.world.base}, TLS: b.world.tls(&b.certificate), Logger: zap.NewNop(),
		MaxCallSendMsgSize: 16 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// etcdAnswers tells whether somebody with a certificate, or none, is answered by the endpoint.
func etcdAnswers(t *testing.T, w *world, certificate *tls.Certificate) error {
	t.Helper()
	client := &http.Client{Timeout: limit, Transport: &http.Transport{TLSClientConfig: w.tls(certificate, "h2"), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "POST", w.base+"/etcdserverpb.KV/Range", bytes.NewReader([]byte{0, 0, 0, 0, 0}))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "application/grpc" {
		return errors.New(resp.Status)
	}
	return nil
}

// asAdmin is the TLS configuration of the administrator.
func (w *world) asAdmin(t *testing.T) *tls.Config {
	t.Helper()
	certificate, err := tls.X509KeyPair(w.admin.CertData, w.admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
}

// forgedFor is a certificate that says all that one of a tenant does, but for who signed it.
func forgedFor(t *testing.T, s *v1alpha1.EtcdStorage) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: s.Name}, NotAfter: time.Now().Add(time.Hour),
		URIs:        []*url.URL{{Scheme: "sailplane-etcd", Path: "/" + s.Name, RawQuery: "uid=" + string(s.UID)}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// text is an answer as one text.
func text(answer any, err error) (string, error) {
	return fmt.Sprintf("%v", answer), err
}

func read(from io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(io.Discard, from)
	return err
}
