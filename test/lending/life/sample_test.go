//go:build unix

package life

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

const (
	wardle = "wardle.example.com"
	// namespace has what is written for the borrower, and name is that of its EtcdStorage. No other object has it.
	namespace, name = "wardle", "flunders"
	secret, caMap   = "etcd-client", "etcd-ca"
)

// etcdStorage is the manifest of the one that the sample-apiserver has.
func etcdStorage() string {
	return fmt.Sprintf(`
apiVersion: storage.sailplane.dev/v1alpha1
kind: EtcdStorage
metadata: {name: %s}
spec:
  clientCertificate: {secret: {namespace: %s, name: %s}}
  authority: {configMap: {namespace: %[2]s, name: %[4]s}}
`, name, namespace, secret, caMap)
}

// lent makes the EtcdStorage, and waits until it can be used.
func (l *lender) lent(t *testing.T) {
	t.Helper()
	l.kubectl(t, etcdStorage(), "create -f -", "created")
	l.kubectl(t, "", "wait etcdstorage/"+name+" --for=condition=Ready --timeout=60s")
}

// sample is the sample-apiserver, on lent storage.
type sample struct {
	*behind.Server
	files *kubelet
	flags []string // further ones, from the next start on
}

// serve runs the sample-apiserver with the files of the EtcdStorage until the test ends.
func (l *lender) serve(t *testing.T) *sample {
	t.Helper()
	files := mount(t, l.config(t))
	endpoint := l.kubectl(t, "", "get etcdstorage "+name+" -o jsonpath={.status.endpoint}")
	server, err := programs.NewSample(t.TempDir(), endpoint, l.Kubeconfig)
	must(t, err)
	s := &sample{Server: server, files: files}
	command := server.Command
	server.Command = func() *exec.Cmd {
		c := command()
		c.Args = slices.Concat(c.Args, []string{
			"--etcd-certfile", filepath.Join(files.dir, secret, "tls.crt"), "--etcd-keyfile", filepath.Join(files.dir, secret, "tls.key"),
			"--etcd-cafile", filepath.Join(files.dir, caMap, "ca.crt"),
		}, s.flags)
		return c
	}
	must(t, s.Run())
	ends(t, func() *behind.Process { return s.Process })
	return s
}

// restart ends the process as a crash does: asked to end, it would give the watches of the front a minute. It starts
// with further flags.
func (s *sample) restart(t *testing.T, flags ...string) {
	t.Helper()
	s.Kill()
	s.flags = flags
	must(t, s.Run())
}

// announce has the lender know where the sample-apiserver is, and waits until it finds it there.
func (l *lender) announce(t *testing.T, s *sample) {
	t.Helper()
	l.kubectl(t, s.APIService(wardle, "v1alpha1")+s.APIService(wardle, "v1beta1"), "apply -f -")
	l.kubectl(t, "", "wait --for=condition=Available --timeout=120s apiservice/v1alpha1."+wardle+" apiservice/v1beta1."+wardle)
	must(t, s.Ready(t.Context()))
}

// direct reaches the server by itself, as the administrator of a lender.
func (s *sample) direct(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Host = "https://127.0.0.1:" + s.Port
	c.CAFile, c.CAData = "", s.CA
	return c
}

// list returns what the objects have in spec.reference, by name.
func list(ctx context.Context, t *testing.T, config *rest.Config) (values map[string]string, version int64) {
	t.Helper()
	values, version, err := tryList(ctx, t, config)
	must(t, err)
	return values, version
}

// tryList is list where the server may be away.
func tryList(ctx context.Context, t *testing.T, config *rest.Config) (values map[string]string, version int64, err error) {
	t.Helper()
	f := &follower{client: flunders(t, config)}
	if _, err := f.list(ctx); err != nil {
		return nil, 0, err
	}
	values = map[string]string{}
	for _, s := range f.seen {
		values[s.name] = s.value
	}
	return values, f.last, nil
}
