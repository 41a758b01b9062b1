package lending

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
)

// TestContract: an EtcdStorage on any storage is one that keeps all promises of a storage, for a server that
// uses it as an etcd cluster.
func TestContract(t *testing.T) {
	for _, name := range storages() {
		t.Run(name, func(t *testing.T) {
			lender := lend(t)
			storagetest.Run(t, func(t testing.TB) controlplane.Storage {
				s, err := lender.Create(t.Context(), name)
				must(t, err)
				config, err := s.TLS()
				must(t, err)
				return etcd.Cluster{Endpoints: []string{s.Endpoint}, TLS: config}
			})
		})
	}
}
