//go:build unix

package etcdserve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// server is a kube-apiserver on an endpoint.
type server struct {
	dir, address string
	arguments    []string
	process      *behind.Process

	config     *rest.Config
	client     *kubernetes.Clientset
	dynamic    dynamic.Interface
	extensions apiextensions.Interface
}

// run runs a kube-apiserver until the test ends.
func run(t *testing.T, e *endpoint, flags ...string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), address: address(t)}
	token, key := rand.Text(), filepath.Join(s.dir, "service-account.key")
	writeKey(t, key)
	tokens := filepath.Join(s.dir, "tokens.csv")
	must(t, os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600))
	_, port, err := net.SplitHostPort(s.address)
	must(t, err)
	s.arguments = slices.Concat(e.flags(), []string{
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + s.dir, "--token-auth-file=" + tokens,
		// Where a machine has no other address than its own, there is none to be found.
		"--advertise-address=192.0.2.1", "--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://" + s.address, "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		// Events end after this time, by a lease of etcd.
		"--event-ttl=5s",
	}, flags)
	s.config = &rest.Config{
		Host: "https://" + s.address, BearerToken: token, QPS: -1, Timeout: patience,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // it signs its certificate itself
	}
	s.client, err = kubernetes.NewForConfig(s.config)
	must(t, err)
	s.dynamic, err = dynamic.NewForConfig(s.config)
	must(t, err)
	s.extensions, err = apiextensions.NewForConfig(s.config)
	must(t, err)
	s.start(t)
	ends(t, func() *behind.Process { return s.process })
	return s
}

// start starts the process, with further flags, and waits until it is ready.
func (s *server) start(t *testing.T, flags ...string) {
	t.Helper()
	var err error
	s.process, err = behind.Start(filepath.Join(s.dir, "log"), exec.Command(apiserver, slices.Concat(s.arguments, flags)...))
	must(t, err)
	until(t, "kube-apiserver is ready", func(ctx context.Context) error {
		err := s.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err != nil {
			return errors.Join(err, alive(s.process)) // what it says is in it
		}
		return nil
	})
}

// restart ends the process as a crash does, and starts it with further flags.
func (s *server) restart(t *testing.T, flags ...string) {
	t.Helper()
	s.process.Kill()
	s.start(t, flags...)
}

// writeKey writes a new private key.
func writeKey(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
}
