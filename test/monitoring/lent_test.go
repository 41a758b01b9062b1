package monitoring

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
)

// fill has an EtcdStorage with all the keys that it may have, and returns what puts one more, which is refused.
func (s *server) fill() (more func()) {
	s.t.Helper()
	s.do(http.StatusCreated, http.MethodPost, "/apis/storage.sailplane.dev/v1alpha1/etcdstorages", `{
		"metadata": {"name": "full"},
		"spec": {
			"clientCertificate": {"secret": {"namespace": "default", "name": "full"}},
			"authority": {"configMap": {"namespace": "default", "name": "full"}},
			"limits": {"keys": 1}
		}
	}`)
	const written = "/api/v1/namespaces/default/"
	s.eventually(http.StatusOK, http.MethodGet, written+"configmaps/full", "") // the last that is
	var secret corev1.Secret
	var authority corev1.ConfigMap
	for path, into := range map[string]any{"secrets/full": &secret, "configmaps/full": &authority} {
		if err := json.Unmarshal(s.do(http.StatusOK, http.MethodGet, written+path, ""), into); err != nil {
			s.t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority.Data["ca.crt"]))
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.url}, Logger: zap.NewNop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	if _, err := client.Put(s.t.Context(), "a", "b"); err != nil {
		s.t.Fatal(err)
	}
	ratio := targeted(labels.FromStrings(labels.MetricName, "sailplane_etcd_storage_limit_used_ratio", "etcd_storage", "full")).String()
	for begun := time.Now(); s.metrics().values[ratio] != 1; {
		if time.Since(begun) > patience {
			s.t.Fatalf("%s is %v", ratio, s.metrics().values[ratio])
		}
	}
	return func() {
		if _, err := client.Put(s.t.Context(), "c", "d"); !errors.Is(err, rpctypes.ErrNoSpace) {
			s.t.Fatalf("a key that is one too many: %v", err)
		}
	}
}
