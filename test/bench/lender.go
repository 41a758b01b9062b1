package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keeper has an etcd endpoint: an etcd, or a server that lends storage.
type keeper struct {
	*server

	endpoint string
	// ca, cert and key are files that its clients have. Empty: they use no TLS.
	ca, cert, key string
	// beside is the etcd that a lender keeps all in, if that is a program of its own.
	beside *keeper
}

// etcd is what runs beside a lender, which may be nothing.
func (k *keeper) etcd() *server {
	if k.beside == nil {
		return &server{}
	}
	return k.beside.server
}

// stop stops the server, and then the etcd beside it.
func (k *keeper) stop() error {
	err := k.server.stop()
	if k.beside != nil {
		err = errors.Join(err, k.beside.stop())
	}
	return err
}

// flags are those that an API server has for its etcd.
func (k *keeper) flags() []string {
	flags := []string{"--etcd-servers=" + k.endpoint}
	if k.cert != "" {
		flags = append(flags, "--etcd-cafile="+k.ca, "--etcd-certfile="+k.cert, "--etcd-keyfile="+k.key)
	}
	return flags
}

// client is an etcd client with a connection of its own.
func (k *keeper) client() (*clientv3.Client, error) {
	config := clientv3.Config{Endpoints: []string{k.endpoint}, DialTimeout: patience, Logger: zap.NewNop()}
	if k.cert != "" {
		pair, err := tls.LoadX509KeyPair(k.cert, k.key)
		if err != nil {
			return nil, err
		}
		ca, err := os.ReadFile(k.ca)
		if err != nil {
			return nil, err
		}
		config.TLS = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		config.TLS.RootCAs.AppendCertsFromPEM(ca)
	}
	return clientv3.New(config)
}

// startEtcd starts an etcd, which asks for client certificates if it is secure.
func startEtcd(ctx context.Context, l *lab, secure bool) (*keeper, error) {
	dir, err := l.fresh()
	if err != nil {
		return nil, err
	}
	client, err := freePort()
	if err != nil {
		return nil, err
	}
	peer, err := freePort()
	if err != nil {
		return nil, err
	}
	k := &keeper{endpoint: fmt.Sprintf("http://127.0.0.1:%d", client)}
	args := etcdArgs(dir, client, peer)
	if secure {
		const host = "localhost"
		// One that signed itself is good for the server, for clients, and as the authority of both.
		if k.cert, k.key, err = writeCertificate(dir, host); err != nil {
			return nil, err
		}
		k.ca, k.endpoint = k.cert, fmt.Sprintf("https://%s:%d", host, client)
		args = append(args, k.secureArgs(client)...)
	}
	p, err := begin(exec.Command(l.program("etcd"), args...))
	if err != nil {
		return nil, err
	}
	k.server = &server{processes: []*process{p}}
	if err := awaitPort(ctx, p, client); err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return k, nil
}

// secureArgs are the further flags of an etcd that asks for client certificates.
func (k *keeper) secureArgs(client int) []string {
	return []string{
		fmt.Sprintf("--listen-client-urls=https://127.0.0.1:%d", client), "--advertise-client-urls=" + k.endpoint,
		"--cert-file=" + k.cert, "--key-file=" + k.key, "--client-cert-auth", "--trusted-ca-file=" + k.ca,
	}
}

// lenderConfig is the configuration of a server whose tenants are never held back.
const lenderConfig = `apiVersion: sailplane.dev/v1alpha1
kind: Server
storageAPI: {enabled: true, limits: {writesPerSecond: 1000000}}
`

// lender is a server that lends a storage.
func (l *lab) lender(storage string, more ...string) (*sailplane, error) {
	file := filepath.Join(l.dir, "lender.yaml")
	t := &sailplane{lab: l, storage: storage, more: append(more, "--config="+file)}
	return t, os.WriteFile(file, []byte(lenderConfig), 0o600)
}

// startLender starts a server that lends a storage, and has it lend some. The etcd beside it, if there is one, is
// stopped with it.
func startLender(ctx context.Context, l *lab, storage string, beside *keeper) (*keeper, error) {
	dir, err := l.fresh()
	if err != nil {
		return nil, err
	}
	var more []string
	if beside != nil {
		more = []string{"--storage-ca=" + beside.ca, "--storage-cert=" + beside.cert, "--storage-key=" + beside.key}
	}
	t, err := l.lender(storage, more...)
	if err != nil {
		return nil, err
	}
	k := &keeper{}
	if k.server, err = t.start(ctx, dir, "start-lending"); err != nil {
		return nil, err
	}
	if err := k.borrow(ctx, dir); err != nil {
		return nil, errors.Join(err, k.stop())
	}
	k.beside = beside
	return k, nil
}

// borrow makes an EtcdStorage, and writes what its client needs to files.
func (k *keeper) borrow(ctx context.Context, dir string) error {
	const name = "bench"
	tenants, err := k.tenants()
	if err != nil {
		return err
	}
	if err := tenants.create(ctx, name); err != nil {
		return err
	}
	if k.endpoint, err = tenants.await(ctx, name); err != nil {
		return err
	}
	client, err := k.clientset("")
	if err != nil {
		return err
	}
	secret, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	authority, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	k.ca, k.cert, k.key = filepath.Join(dir, "etcd-ca.crt"), filepath.Join(dir, "etcd.crt"), filepath.Join(dir, "etcd.key")
	return errors.Join(
		os.WriteFile(k.ca, []byte(authority.Data["ca.crt"]), 0o600),
		os.WriteFile(k.cert, secret.Data[corev1.TLSCertKey], 0o600),
		os.WriteFile(k.key, secret.Data[corev1.TLSPrivateKeyKey], 0o600),
	)
}
