package storage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

// TestLimits: requests, /readyz and their reasons tell apart what is wrong with an etcd
// that runs somewhere else, whichever version it has.
func TestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("three etcds are compiled once, which takes minutes; run without -short")
	}
	t.Parallel()
	for _, version := range []string{"etcd35", "etcd36", "etcd37"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			program := build(t, version)
			t.Run("leader", func(t *testing.T) { t.Parallel(); loseLeader(t, program) })
			t.Run("certificate", func(t *testing.T) { t.Parallel(); changeCertificate(t, program) })
			t.Run("space", func(t *testing.T) { t.Parallel(); fillUp(t, program) })
		})
	}
}

// loseLeader adds a member that does not exist to a cluster of one, which has no
// majority then.
func loseLeader(t *testing.T, program string) {
	url := serve(t, program, t.TempDir())
	c := serving(t, etcd.Cluster{Endpoints: []string{url}, DialTimeout: patience, RequestTimeout: time.Second})
	direct, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if _, err := direct.MemberAdd(t.Context(), []string{"http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	body := awaitReady(t, c, http.StatusInternalServerError, "[-]storage-etcd-leader failed")
	refused(t, "a create without a leader", create(t, c, "a", ""))
	err = list(t, c)
	refused(t, "a list without a leader", err)
	if !strings.Contains(fmt.Sprint(err), "no leader") {
		t.Errorf("a list without a leader ends in %v", err)
	}
	counted(t, "leader")
	for _, other := range []string{"answer", "certificate", "space"} {
		if !strings.Contains(body, "[+]storage-etcd-"+other+" ok") {
			t.Errorf("/readyz blames %s too:\n%s", other, body)
		}
	}
}

// changeCertificate has another etcd answer at the address, whose certificate the
// server does not trust, and then the first one again.
func changeCertificate(t *testing.T, program string) {
	dir := t.TempDir()
	trusted, other := certificate(t, dir, "trusted"), certificate(t, dir, "other")
	flags := func(c string) []string { return []string{"--cert-file", c + ".crt", "--key-file", c + ".key"} }
	first := serveAt(t, program, filepath.Join(dir, "1"), "https", flags(trusted)...)
	second := serveAt(t, program, filepath.Join(dir, "2"), "https", flags(other)...)
	w := newWire(t, first)
	c := serving(t, etcd.Cluster{
		Endpoints: []string{"https://" + w.listener.Addr().String()}, CAFile: trusted + ".crt", DialTimeout: patience, RequestTimeout: time.Second,
	})
	t.Cleanup(func() { w.set("") })
	w.lead(second)
	awaitReady(t, c, http.StatusInternalServerError, "[-]storage-etcd-certificate failed")
	err := create(t, c, "a", "")
	refused(t, "a create with a certificate that is not trusted", err)
	if !strings.Contains(fmt.Sprint(err), "x509") {
		t.Errorf("a create with a certificate that is not trusted ends in %v", err)
	}
	counted(t, "certificate")
	w.lead(first)
	awaitReady(t, c, http.StatusOK)
	if err := create(t, c, "a", ""); err != nil {
		t.Errorf("with the certificate of before a create ends in %v", err)
	}
}

// fillUp writes until the quota is reached.
func fillUp(t *testing.T, program string) {
	url := "http://" + serveAt(t, program, t.TempDir(), "http", "--quota-backend-bytes", fmt.Sprint(16<<20))
	c := serving(t, etcd.Cluster{Endpoints: []string{url}, DialTimeout: patience})
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = create(t, c, fmt.Sprint("a", i), strings.Repeat("x", 512<<10))
	}
	if codeOf(err) != http.StatusInsufficientStorage {
		t.Errorf("a create beyond the quota ends in %v, want 507", err)
	}
	counted(t, "space")
	awaitReady(t, c, http.StatusInternalServerError, "[-]storage-etcd-space failed")
	if err := list(t, c); err != nil {
		t.Errorf("a list from a storage that is full ends in %v", err)
	}
}

// codeOf is the code of an answer, or 0 where it is none.
func codeOf(err error) int32 {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		return s.Status().Code
	}
	return 0
}

// counted: the metric of refused requests has the reason.
func counted(t *testing.T, reason string) {
	t.Helper()
	for _, m := range metricsOf(t, "sailplane_storage_refused_total") {
		if m.labels["reason"] == reason && m.value > 0 {
			return
		}
	}
	t.Errorf("sailplane_storage_refused_total has no %q", reason)
}

// create creates a ConfigMap, once: clients of Kubernetes try again by themselves.
func create(t *testing.T, c *kubernetes.Clientset, name, value string) error {
	t.Helper()
	body := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	return c.CoreV1().RESTClient().Post().Namespace("default").Resource("configmaps").Body(body).MaxRetries(0).Do(t.Context()).Error()
}

// list lists ConfigMaps, once.
func list(t *testing.T, c *kubernetes.Clientset) error {
	t.Helper()
	return c.CoreV1().RESTClient().Get().Namespace("default").Resource("configmaps").MaxRetries(0).Do(t.Context()).Error()
}

// certificate makes a certificate of its own authority for loopback, and returns what
// its files are called without ".crt" and ".key".
func certificate(t *testing.T, dir, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(path+suffix, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
