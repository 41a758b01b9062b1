// Package testserver takes the place of Kubernetes' package of this name: its tests run on
// EtcdStorages of a lender, in place of an embedded etcd.
package testserver

import (
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"

	"github.com/sailplane-dev/sailplane/test/lending/lent"
)

// The environment has the URL of the lender, and the name of the storage that has the data.
const (
	Lender  = "LENDER"
	Storage = "LENDER_STORAGE"
)

// NewTestConfig returns what tests may change: RunEtcd does not look at it.
func NewTestConfig(testing.TB) *embed.Config { return embed.NewConfig() }

// RunEtcd returns a client of an EtcdStorage of its own, which is empty.
func RunEtcd(t testing.TB, _ *embed.Config) *kubernetes.Client {
	t.Helper()
	s, err := lent.Lender(os.Getenv(Lender)).Create(t.Context(), os.Getenv(Storage))
	if err != nil {
		t.Fatal(err)
	}
	config, err := s.TLS()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.New(clientv3.Config{
		Endpoints: []string{s.Endpoint}, TLS: config, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // its error only says that it was closed
	// The tests ask these what was read.
	lists := storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.Kubernetes, client.KV = lists, storagetesting.NewKVRecorder(client.KV, lists)
	return client
}
