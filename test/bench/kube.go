package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kube is kube-apiserver with etcd or kine beside it, as envtest starts them:
// flags that say where things are, and the defaults for all others. Its start is
// that of both.
type kube struct {
	lab   *lab
	peers *peers
	kine  bool
	// proxies has it show a certificate to the servers behind it, as in clusters.
	proxies bool
}

func (k *kube) name() string {
	if k.kine {
		return columnKine
	}
	return columnKube
}

const (
	// columnKube is what the others are compared with.
	columnKube = "kube-apiserver, etcd"
	columnKine = "kube-apiserver, kine"
)

func (k *kube) start(ctx context.Context, dir, _ string) (*server, error) {
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	storage, err := begin(k.storage(dir, ports[0], ports[1]))
	if err != nil {
		return nil, err
	}
	if err := awaitPort(ctx, storage, ports[0]); err != nil {
		return nil, errors.Join(err, storage.stop())
	}
	return k.serve(ctx, dir, fmt.Sprintf("http://127.0.0.1:%d", ports[0]), storage)
}

// serve starts kube-apiserver on a storage that runs, which is stopped with it, if it is given.
func (k *kube) serve(ctx context.Context, dir, etcd string, storage *process) (s *server, err error) {
	s = &server{kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	if storage != nil {
		s.processes = []*process{storage}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	keys, tokens := filepath.Join(dir, "service-account.key"), filepath.Join(dir, "tokens.csv")
	token := rand.Text()
	err = errors.Join(writeKey(keys), os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600))
	if err != nil {
		return nil, err
	}
	config := &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // it signs its certificate itself
	}
	if err := writeKubeconfig(s.kubeconfig, config); err != nil {
		return nil, err
	}
	args := apiserverArgs(dir, etcd, port)
	if k.proxies {
		cert, key, err := writeCertificate(dir, "front-proxy")
		if err != nil {
			return nil, err
		}
		args = append(args, proxyArgs(cert, key)...)
	}
	if k.lab.audit {
		args = append(args, "--audit-log-path="+filepath.Join(dir, "audit.log"), "--audit-policy-file="+k.lab.auditPolicy())
	}
	apiserver, err := begin(exec.Command(k.peers.program("kube-apiserver"), args...))
	if err != nil {
		return nil, err
	}
	if storage != nil {
		apiserver.begun = storage.begun
	}
	s.processes = append([]*process{apiserver}, s.processes...)
	return s, s.await(ctx, func() (*rest.Config, error) { return config, nil })
}

// storage is the command of what keeps the objects.
func (k *kube) storage(dir string, client, peer int) *exec.Cmd {
	if !k.kine {
		return exec.Command(k.peers.program("etcd"), etcdArgs(dir, client, peer)...)
	}
	cmd := exec.Command(k.peers.program("kine"), kineArgs(client)...)
	cmd.Dir = dir // in which it keeps db/state.db
	return cmd
}

func kineArgs(client int) []string {
	return []string{fmt.Sprintf("--listen-address=127.0.0.1:%d", client), "--metrics-bind-address=0"}
}

// sharedKineArgs has kine keep the connections that 32 clients need: with its default of 20 it made most of the CPU of
// PostgreSQL out of new ones.
func sharedKineArgs(client int) []string {
	return append(kineArgs(client), "--datastore-max-idle-connections=100")
}

func etcdArgs(dir string, client, peer int) []string {
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	return []string{
		"--data-dir=" + filepath.Join(dir, "etcd"), "--name=bench",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=bench=" + peers,
	}
}

func apiserverArgs(dir, etcd string, secure int) []string {
	key := filepath.Join(dir, "service-account.key")
	return []string{
		"--etcd-servers=" + etcd, fmt.Sprintf("--secure-port=%d", secure),
		"--bind-address=127.0.0.1", "--cert-dir=" + dir, "--token-auth-file=" + filepath.Join(dir, "tokens.csv"),
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24",
		fmt.Sprintf("--service-account-issuer=https://127.0.0.1:%d/", secure),
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
	}
}

// proxyArgs has servers behind it know who asks.
func proxyArgs(cert, key string) []string {
	return []string{
		"--proxy-client-cert-file=" + cert, "--proxy-client-key-file=" + key, "--requestheader-client-ca-file=" + cert,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
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
