package behind

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/sailplane-dev/sailplane/test/program"
)

// Programs are those that are built: sample-apiserver, with its etcd.
type Programs struct{ Sample, Etcd string }

// BuildPrograms builds them into a folder.
func BuildPrograms(ctx context.Context, dir string) (Programs, error) {
	p := Programs{Sample: filepath.Join(dir, "sample-apiserver"), Etcd: filepath.Join(dir, "etcd")}
	return p, errors.Join(
		program.Build(ctx, "test/federation/sample", "k8s.io/sample-apiserver", p.Sample),
		program.Build(ctx, "test/storage/etcd37", "go.etcd.io/etcd/server/v3", p.Etcd),
	)
}

// StartEtcd starts the etcd with its data in a folder, and returns where it is.
func (p Programs) StartEtcd(dir string) (etcd *Process, client string, _ error) {
	ports := [2]string{}
	for i := range ports {
		port, err := Port()
		if err != nil {
			return nil, "", err
		}
		ports[i] = "http://127.0.0.1:" + port
	}
	client, peer := ports[0], ports[1]
	etcd, err := Start(filepath.Join(dir, "log"), exec.Command(p.Etcd,
		"--data-dir", filepath.Join(dir, "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error"))
	return etcd, client, err
}

// NewSample has a sample-apiserver to be run, which keeps its objects in an etcd and asks the
// front as who a kubeconfig says.
func (p Programs) NewSample(dir, etcd, kubeconfig string) (*Server, error) {
	s, err := NewServer("sample", dir)
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	s.Command = func() *exec.Cmd {
		return exec.Command(p.Sample, "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", s.Port,
			"--tls-cert-file", s.CertFile, "--tls-private-key-file", s.KeyFile,
			"--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig)
	}
	return s, nil
}

// NewSailplane has a server of Sailplane to be run, with the CRDs of a folder, which believes a
// front that has a certificate of an authority.
func NewSailplane(name, dir, crds, frontCA string) (*Server, error) {
	s, err := NewServer(name, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.Command = func() *exec.Cmd {
		return exec.Command("sailplane", "serve", "--listen", "127.0.0.1:"+s.Port, "--data-dir", dir, "--crds", crds,
			"--storage", "sqlite:"+filepath.Join(dir, "objects.db"), "--tls-cert-file", s.CertFile, "--tls-private-key-file", s.KeyFile,
			"--requestheader-client-ca-file", frontCA, "--requestheader-allowed-names", "sailplane-front-proxy")
	}
	return s, nil
}
