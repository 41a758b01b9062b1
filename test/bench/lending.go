package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// lendingName is the value of -only for storage that is lent to other API servers.
	lendingName    = "lending"
	phaseLending   = "Storage lent to other API servers"
	phaseTenants   = "EtcdStorages at rest"
	lendingClients = 8

	flundersPath = "/apis/wardle.example.com/v1alpha1/namespaces/" + metav1.NamespaceDefault + "/flunders"

	columnOwnEtcd    = "etcd"
	columnPlainEtcd  = "etcd without TLS"
	columnLentSQLite = "EtcdStorage, sqlite"
	columnLentEtcd   = "EtcdStorage, etcd beside it"
	columnLentInside = "EtcdStorage, etcd in it"
)

func lentCreateRow() string {
	return fmt.Sprintf("create, %d clients: CPU s of what stores per 1,000", lendingClients)
}

// lendingAims are the most that lent storage may be of what an etcd is, and take.
func lendingAims(tenants int) []aim {
	return []aim{
		{lentCreateRow(), 1.3, ""},
		{lentEventRow() + ": p50 ms", 2, ""},
		{lentEventRow() + ": p99 ms", 2, ""},
		{tenantRow(tenants, rowTenantHeap), 50, "KiB"},
		{tenantRow(tenants, rowTenantMemory), 50, "KiB"},
		{tenantRow(tenants, rowTenantGoroutines), 0.01, "goroutines"},
	}
}

// keeping is something that has an etcd endpoint.
type keeping struct {
	title string
	start func(context.Context, *lab) (*keeper, error)
}

// keepings are an etcd, as an API server has it that is taken care of, and what lends storage.
func keepings() []keeping {
	return []keeping{
		{columnOwnEtcd, func(ctx context.Context, l *lab) (*keeper, error) { return startEtcd(ctx, l, true) }},
		{columnPlainEtcd, func(ctx context.Context, l *lab) (*keeper, error) { return startEtcd(ctx, l, false) }},
		{columnLentSQLite, func(ctx context.Context, l *lab) (*keeper, error) { return startLender(ctx, l, storageSQLite, nil) }},
		{columnLentEtcd, func(ctx context.Context, l *lab) (*keeper, error) {
			etcd, err := startEtcd(ctx, l, true)
			if err != nil {
				return nil, err
			}
			k, err := startLender(ctx, l, "etcd+"+etcd.endpoint, etcd)
			if err != nil {
				return nil, errors.Join(err, etcd.stop())
			}
			return k, nil
		}},
		{columnLentInside, func(ctx context.Context, l *lab) (*keeper, error) { return startLender(ctx, l, storageEtcd, nil) }},
	}
}

// measureLending measures once for each storage what a sample-apiserver costs it, and then what EtcdStorages take that
// nobody is connected to.
func measureLending(ctx context.Context, l *lab) error {
	all := keepings()
	for _, k := range all {
		l.lent.measure(k.title)
	}
	// Who asks, and what they may, a sample-apiserver asks another server than the one that lends.
	front := &sailplane{lab: l, storage: storageMemory}
	return with(ctx, l, front, func(front *server) error {
		for i := range all {
			k := all[(i+l.round)%len(all)]
			l.say("round %d of %d: %s: %s", l.round+1, l.rounds, lendingName, k.title)
			l.lent.measure(k.title)
			if err := l.measureKeeping(ctx, k, front); err != nil {
				return fmt.Errorf("%s: %w", k.title, err)
			}
		}
		l.say("round %d of %d: %s: %v EtcdStorages", l.round+1, l.rounds, lendingName, l.tenants)
		l.lent.measure(columnLentSQLite)
		return measureTenants(ctx, l)
	})
}

func (l *lab) measureKeeping(ctx context.Context, k keeping, front *server) (err error) {
	kept, err := k.start(ctx, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.stop()) }()
	err = withSample(ctx, l, kept, front, func(sample *server) error { return l.lentCreates(ctx, kept, sample) })
	if err != nil {
		return err
	}
	return l.lentEvents(ctx, kept)
}

// withSample runs f beside an unmodified sample-apiserver that has its objects in a storage.
func withSample(ctx context.Context, l *lab, k *keeper, front *server, f func(*server) error) (err error) {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	const host = "localhost"
	cert, key, err := writeCertificate(dir, host)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	args := append(k.flags(), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file="+cert, "--tls-private-key-file="+key, "--kubeconfig="+front.kubeconfig,
		"--authentication-kubeconfig="+front.kubeconfig, "--authorization-kubeconfig="+front.kubeconfig)
	p, err := begin(exec.Command(l.program("sample-apiserver"), args...))
	if err != nil {
		return err
	}
	s := &server{processes: []*process{p}}
	defer func() { err = errors.Join(err, s.stop()) }()
	config := rest.CopyConfig(front.config)
	config.Host = fmt.Sprintf("https://%s:%d", host, port)
	config.CAFile, config.CAData = cert, nil
	config.WarningHandler = rest.NoWarnings{} // of the version of flunders
	if err := s.await(ctx, func() (*rest.Config, error) { return config, nil }); err != nil {
		return err
	}
	if err := awaitFlunders(ctx, s); err != nil {
		return err
	}
	return f(s)
}

// awaitFlunders returns when an administrator gets an answer. A sample-apiserver is ready a moment before it asks
// connections for client certificates.
func awaitFlunders(ctx context.Context, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		client, err := s.clientset("")
		if err != nil {
			return err
		}
		err = client.CoreV1().RESTClient().Get().AbsPath(flundersPath).MaxRetries(0).Do(ctx).Error()
		if err == nil {
			return nil
		}
		if pause(ctx, pollEvery) != nil {
			return fmt.Errorf("the sample-apiserver does not answer: %w", err)
		}
	}
}

// lentCreates measures creates of objects of 1 KiB.
func (l *lab) lentCreates(ctx context.Context, k *keeper, sample *server) error {
	clients, err := sample.clientsets(lendingClients, "")
	if err != nil {
		return err
	}
	create := func(prefix string) func(ctx context.Context, client, i int) error {
		return func(ctx context.Context, client, i int) error {
			return createFlunder(ctx, clients[client], fmt.Sprintf("%s-%d", prefix, i))
		}
	}
	if _, err := repeat(ctx, lendingClients, warmUp, create("warm")); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	var took []time.Duration
	n := 2 * l.requests
	beside, err := k.etcd().cpu()
	if err != nil {
		return err
	}
	cpu, err := k.spent(func() error {
		return k.phase("create flunders", func() (err error) {
			took, err = repeat(ctx, lendingClients, n, create("flunder"))
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	l.lent.add(phaseLending, lentCreateRow(), cpu.Seconds()*1000/float64(n))
	if k.beside != nil {
		after, err := k.beside.cpu()
		if err != nil {
			return err
		}
		l.lent.add(phaseLending, fmt.Sprintf("create, %d clients: CPU s per 1,000, with the etcd beside it", lendingClients),
			(cpu+after-beside).Seconds()*1000/float64(n))
	}
	l.lent.latencies(phaseLending, fmt.Sprintf("create, %d clients", lendingClients), took)
	return nil
}

func createFlunder(ctx context.Context, client *kubernetes.Clientset, name string) error {
	flunder := fmt.Sprintf(`{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":%q},"spec":{"reference":%q}}`,
		name, value("created"))
	return client.CoreV1().RESTClient().Post().AbsPath(flundersPath).SetHeader("Content-Type", "application/json").
		Body([]byte(flunder)).Do(ctx).Error()
}

// lendingFlags are the command lines.
func lendingFlags() string {
	etcd := strings.Join(etcdArgs("DIR", 2379, 2380), " ")
	k := &keeper{endpoint: "https://localhost:2379", ca: "CERT", cert: "CERT", key: "KEY"}
	lend := "sailplane serve " + strings.Join(serveArgs("DIR", storageSQLite, 6443), " ")
	return fmt.Sprintf("etcd %s %s\netcd %s # without TLS\n%s --config=FILE # with storageAPI\nsample-apiserver %s\n",
		etcd, strings.Join(k.secureArgs(2379), " "), etcd, lend, strings.Join(k.flags(), " "))
}
