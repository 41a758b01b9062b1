package storage

import (
	"context"
	"net/http"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
)

// full is a storage that has no room for anything more.
type full struct{ controlplane.Storage }

// Open implements controlplane.Storage.
func (f full) Open() controlplane.Backend { return fullBackend{f.Storage.Open()} }

type fullBackend struct{ controlplane.Backend }

// Client implements controlplane.Backend.
func (b fullBackend) Client() (*clientv3.Client, error) {
	c, err := b.Backend.Client()
	if err == nil {
		c.KV = fullKV{c.KV}
	}
	return c, err
}

type fullKV struct{ clientv3.KV }

// Put implements clientv3.KV.
func (fullKV) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, rpctypes.ErrNoSpace
}

// Txn implements clientv3.KV.
func (kv fullKV) Txn(ctx context.Context) clientv3.Txn { return &fullTxn{Txn: kv.KV.Txn(ctx)} }

type fullTxn struct {
	clientv3.Txn
	puts bool
}

// If implements clientv3.Txn.
func (t *fullTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(cs...)
	return t
}

// Then implements clientv3.Txn.
func (t *fullTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		t.puts = t.puts || op.IsPut()
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *fullTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

// Commit implements clientv3.Txn.
func (t *fullTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.puts {
		return nil, rpctypes.ErrNoSpace
	}
	return t.Txn.Commit()
}

// TestStartOnFull: a server with all parts starts on data that it has written once, where
// nothing more can be, is read, and says that writes are refused for want of room.
func TestStartOnFull(t *testing.T) {
	t.Parallel()
	for name, open := range storages() {
		if name == "memory" {
			continue // it keeps nothing
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, keys := t.TempDir(), t.TempDir()
			parts := func() []controlplane.Part {
				return []controlplane.Part{
					authn.Admin{Dir: keys},
					authz.RBAC{},
					serviceaccount.Tokens{Dir: keys},
					preset.Standard(),
					crd.Definitions{},
					aggregator.APIServices{},
					fairness.PriorityAndFairness{},
					kube.FlowControl(),
				}
			}
			t.Run("empty", func(t *testing.T) {
				if err := create(t, serveParts(t, open(dir), parts()...), "a", ""); err != nil {
					t.Fatal(err)
				}
			})
			c := serveParts(t, full{open(dir)}, parts()...)
			if err := list(t, c); err != nil {
				t.Errorf("a list from a storage that is full ends in %v", err)
			}
			if err := create(t, c, "b", ""); codeOf(err) != http.StatusInsufficientStorage {
				t.Errorf("a create in a storage that is full ends in %v, want 507", err)
			}
		})
	}
}
