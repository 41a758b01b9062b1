package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kube is kube-apiserver with etcd beside it, as envtest starts them. Its start
// is that of both.
type kube struct{ apiserver, etcd string }

func findKube() (*kube, error) {
	var missing []string
	find := func(name string) string {
		if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path
			}
		}
		path, err := exec.LookPath(name)
		if err != nil {
			missing = append(missing, name)
		}
		return path
	}
	k := &kube{apiserver: find("kube-apiserver"), etcd: find("etcd")}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s: neither in KUBEBUILDER_ASSETS nor on PATH", strings.Join(missing, ", "))
	}
	return k, nil
}

func (k *kube) name() string { return "kube-apiserver" }

func (k *kube) start(ctx context.Context, dir, _ string) (*server, error) {
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	keys, tokens := filepath.Join(dir, "service-account.key"), filepath.Join(dir, "tokens.csv")
	token := rand.Text()
	err := errors.Join(writeKey(keys), os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600))
	if err != nil {
		return nil, err
	}
	s := &server{kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	config := &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // it signs its certificate itself
	}
	if err := writeKubeconfig(s.kubeconfig, config); err != nil {
		return nil, err
	}
	etcd, err := begin(exec.Command(k.etcd, etcdArgs(dir, ports[0], ports[1])...))
	if err != nil {
		return nil, err
	}
	apiserver, err := begin(exec.Command(k.apiserver, apiserverArgs(dir, ports[0], ports[2])...))
	if err != nil {
		return nil, errors.Join(err, etcd.stop())
	}
	apiserver.begun = etcd.begun
	s.processes = []*process{apiserver, etcd}
	if err := s.await(ctx, func() (*rest.Config, error) { return config, nil }); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func etcdArgs(dir string, client, peer int) []string {
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	return []string{
		"--data-dir=" + filepath.Join(dir, "etcd"), "--name=bench",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=bench=" + peers,
	}
}

func apiserverArgs(dir string, etcd, secure int) []string {
	key := filepath.Join(dir, "service-account.key")
	return []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", etcd), fmt.Sprintf("--secure-port=%d", secure),
		"--bind-address=127.0.0.1", "--cert-dir=" + dir, "--token-auth-file=" + filepath.Join(dir, "tokens.csv"),
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24",
		fmt.Sprintf("--service-account-issuer=https://127.0.0.1:%d/", secure),
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
	}
}

// writeKey writes a new private key.
func writeKey(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// writeKubeconfig writes what kubectl needs of a client configuration.
func writeKubeconfig(name string, c *rest.Config) error {
	const only = "bench"
	config := clientcmdapi.NewConfig()
	config.Clusters[only] = &clientcmdapi.Cluster{Server: c.Host, InsecureSkipTLSVerify: true}
	config.AuthInfos[only] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	config.Contexts[only] = &clientcmdapi.Context{Cluster: only, AuthInfo: only}
	config.CurrentContext = only
	return clientcmd.WriteToFile(*config, name)
}
