package storageapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// TestMain looks for goroutines that outlive their servers.
func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// run runs a server until stop, or until the test ends.
func run(t testing.TB, server *controlplane.Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		t.Fatalf("Run: %v", err)
	}
	t.Cleanup(stop)
	return stop
}

// lender is a running server that lends storage.
type lender struct {
	server *controlplane.Server
	core   kubernetes.Interface
	lent   rest.Interface
	stop   func()
}

// lend runs a server until the test ends.
func lend(t testing.TB, e EtcdStorages, s controlplane.Storage, parts ...controlplane.Part) *lender {
	t.Helper()
	if s == nil {
		s = memory.Store{}
	}
	server, err := controlplane.New("shop").Listen("127.0.0.1:0").Storage(s).With(
		authn.Admin{}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, e,
	).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	l := &lender{server: server, stop: run(t, server)}
	if l.core, err = kubernetes.NewForConfig(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	if l.lent, err = clientOf(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return l
}

// again calls something until it succeeds. There is nothing to wait for but its answer.
func again(t testing.TB, what string, try func() error) {
	t.Helper()
	err := try()
	for end := time.Now().Add(time.Minute); err != nil; err = try() {
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s: %v", what, err)
		}
	}
}

// named is an EtcdStorage with destinations of its own in the namespace default.
func named(name string, changes ...func(*v1alpha1.EtcdStorageSpec)) *v1alpha1.EtcdStorage {
	s := &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.ClientCertificate.Secret = v1alpha1.Destination{Namespace: "default", Name: name + "-client"}
	s.Spec.Authority.ConfigMap = v1alpha1.Destination{Namespace: "default", Name: name + "-ca"}
	for _, change := range changes {
		change(&s.Spec)
	}
	return s
}

// create makes an EtcdStorage, and returns it when it is ready.
func (l *lender) create(t testing.TB, s *v1alpha1.EtcdStorage) *v1alpha1.EtcdStorage {
	t.Helper()
	if err := l.lent.Post().Resource("etcdstorages").Body(s).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	return l.until(t, s.Name, metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
}

// endpoint is where tenants reach the server.
func (l *lender) endpoint(t testing.TB) string {
	t.Helper()
	e, err := pki.EndpointOf(l.server.Address())
	if err != nil {
		t.Fatal(err)
	}
	return e.URL
}

// until waits for the condition of an EtcdStorage.
func (l *lender) until(t testing.TB, name string, status metav1.ConditionStatus, reason string) *v1alpha1.EtcdStorage {
	t.Helper()
	return l.follow(t, name, string(status)+" "+reason, func(s *v1alpha1.EtcdStorage) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == s.Generation
	})
}

// follow watches an EtcdStorage until it is as wanted. One that does not exist is nil.
func (l *lender) follow(t testing.TB, name, what string, is func(*v1alpha1.EtcdStorage) bool) (last *v1alpha1.EtcdStorage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one := cache.NewListWatchFromClient(l.lent, "etcdstorages", "", fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	absent := func(store cache.Store) (bool, error) { return len(store.List()) == 0 && is(nil), nil }
	_, err := watchtools.UntilWithSync(ctx, one, &v1alpha1.EtcdStorage{}, absent, func(e watch.Event) (bool, error) {
		last, _ = e.Object.(*v1alpha1.EtcdStorage)
		if e.Type == watch.Deleted {
			last = nil
		}
		return is(last), nil
	})
	if err != nil {
		t.Fatalf("EtcdStorage %s is not %s: %v: %+v", name, what, err, last)
	}
	return last
}

// credentials are those that the destinations of an EtcdStorage have now.
func (l *lender) credentials(t testing.TB, s *v1alpha1.EtcdStorage) *tls.Config {
	t.Helper()
	secret, err := l.core.CoreV1().Secrets("default").Get(t.Context(), s.Spec.ClientCertificate.Secret.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.core.CoreV1().ConfigMaps("default").Get(t.Context(), s.Spec.Authority.ConfigMap.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(m.Data["ca.crt"])) {
		t.Fatal("the ConfigMap has no authority")
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// connect returns an etcd client of an EtcdStorage.
func (l *lender) connect(t testing.TB, s *v1alpha1.EtcdStorage) *clientv3.Client {
	t.Helper()
	return dial(t, s, l.credentials(t, s))
}

func dial(t testing.TB, s *v1alpha1.EtcdStorage, config *tls.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Status.Endpoint}, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// keysOf are all keys that a client sees, with their values.
func keysOf(t testing.TB, c *clientv3.Client) map[string]string {
	t.Helper()
	r, err := c.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

func put(t testing.TB, c *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := c.Put(t.Context(), key, value); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}
