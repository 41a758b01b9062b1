package storageapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// TestMain looks for goroutines that outlive their servers.
func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// lender is a running server that lends storage.
type lender struct {
	server *controlplane.Server
	core   kubernetes.Interface
	lent   rest.Interface
	stop   func()
}

// lend runs a server until the test ends.
func lend(t testing.TB, e EtcdStorages, s controlplane.Storage) *lender {
	t.Helper()
	if s == nil {
		s = memory.Store{}
	}
	server, err := controlplane.New("shop").Listen("127.0.0.1:0").Storage(s).With(
		authn.Admin{}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, e,
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	l := &lender{server: server}
	l.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.stop = func() {}
	}
	t.Cleanup(func() { l.stop() })
	if l.core, err = kubernetes.NewForConfig(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	if l.lent, err = clientOf(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return l
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s", what)
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

// until waits for the condition of an EtcdStorage.
func (l *lender) until(t testing.TB, name string, status metav1.ConditionStatus, reason string) (s *v1alpha1.EtcdStorage) {
	t.Helper()
	eventually(t, name+" is not "+reason, func() bool {
		s = l.get(t, name)
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == s.Generation
	})
	return s
}

func (l *lender) get(t testing.TB, name string) *v1alpha1.EtcdStorage {
	t.Helper()
	s := &v1alpha1.EtcdStorage{}
	if err := l.lent.Get().Resource("etcdstorages").Name(name).Do(t.Context()).Into(s); err != nil {
		t.Fatal(err)
	}
	return s
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
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Status.Endpoint}, TLS: l.credentials(t, s), Logger: zap.NewNop()})
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
