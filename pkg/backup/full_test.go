package backup_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/format"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// filled is a storage in memory that has no room for the note of a backup.
type filled struct{ memory.Store }

// Open implements controlplane.Storage.
func (f filled) Open() controlplane.Backend { return filledBackend{f.Store.Open()} }

type filledBackend struct{ controlplane.Backend }

// Client implements controlplane.Backend.
func (b filledBackend) Client() (*clientv3.Client, error) {
	c, err := b.Backend.Client()
	if err == nil {
		c.KV = filledKV{c.KV}
	}
	return c, err
}

type filledKV struct{ clientv3.KV }

// Txn implements clientv3.KV.
func (k filledKV) Txn(ctx context.Context) clientv3.Txn { return filledTxn{k.KV.Txn(ctx), false} }

type filledTxn struct {
	clientv3.Txn
	noted bool
}

// If implements clientv3.Txn.
func (t filledTxn) If(c ...clientv3.Cmp) clientv3.Txn { return filledTxn{t.Txn.If(c...), t.noted} }

// Then implements clientv3.Txn.
func (t filledTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return filledTxn{t.Txn.Then(ops...), strings.HasSuffix(string(ops[0].KeyBytes()), "/"+format.BackupName)}
}

// Commit implements clientv3.Txn.
func (t filledTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.noted {
		return nil, rpctypes.ErrNoSpace
	}
	return t.Txn.Commit()
}

// TestFullStorage: a storage that takes no more can be backed up.
func TestFullStorage(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, filled{})
	secrets(t, s, 3)
	if err := s.NoteBackup(t.Context(), controlplane.Backup{}); err == nil {
		t.Fatal("the storage has room")
	}
	front := httptest.NewServer(s.Handler())
	defer front.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+backup.Path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Name", "root")
	answer, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if info, err := backup.Read(t.Context(), answer.Body); err != nil || info.Resources["secrets"].Objects != 3 {
		t.Errorf("%v, %+v", err, info)
	}
}
