package storageapi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// guarded is a storage that asks before it writes keys of tenants, and not what is known of them.
type guarded struct {
	controlplane.Storage
	ask *atomic.Pointer[func(context.Context) error]
}

// Open implements controlplane.Storage.
func (g guarded) Open() controlplane.Backend { return guardedBackend{g.Storage.Open(), g.ask} }

type guardedBackend struct {
	controlplane.Backend
	ask *atomic.Pointer[func(context.Context) error]
}

// Client implements controlplane.Backend.
func (b guardedBackend) Client() (*clientv3.Client, error) {
	c, err := b.Backend.Client()
	if err == nil {
		c.KV = guardedKV{c.KV, b.ask}
	}
	return c, err
}

type guardedKV struct {
	clientv3.KV
	ask *atomic.Pointer[func(context.Context) error]
}

// Txn implements clientv3.KV.
func (k guardedKV) Txn(ctx context.Context) clientv3.Txn {
	return guardedTxn{k.KV.Txn(ctx), func() error {
		if ask := k.ask.Load(); ask != nil {
			return (*ask)(ctx)
		}
		return nil
	}, false}
}

type guardedTxn struct {
	clientv3.Txn
	ask     func() error
	tenants bool
}

// If implements clientv3.Txn.
func (t guardedTxn) If(c ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(c...)
	return t
}

// Then implements clientv3.Txn.
func (t guardedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn, t.tenants = t.Txn.Then(ops...), strings.Contains(string(ops[0].KeyBytes()), "/a/k/registry/")
	return t
}

// Commit implements clientv3.Txn.
func (t guardedTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.tenants {
		if err := t.ask(); err != nil {
			return nil, err
		}
	}
	return t.Txn.Commit()
}

// guard has something asked from now on, with how often it was.
func (g guarded) guard(asked func(ctx context.Context, n int32) error) {
	var n atomic.Int32
	f := func(ctx context.Context) error { return asked(ctx, n.Add(1)) }
	g.ask.Store(&f)
}

// waits waits until EtcdStorage a says that it waits for a restore, and why. No client is let in.
func (l *lender) waits(t *testing.T, why string) {
	t.Helper()
	s := l.follow(t, "a", "waiting for a restore", func(s *v1alpha1.EtcdStorage) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		return isRestoring(s) && strings.Contains(c.Message, why) && strings.Contains(c.Message, "run the same command again") &&
			s.Status.Endpoint == l.endpoint(t)
	})
	if err := refused(t, s, l.credentials(t, s)); err == nil {
		t.Error("a client is let in, where the data is not complete")
	}
}

// TestRestoreInterrupted: a restore that ends in the middle, with an error of the storage, its client or the server, leaves
// nobody in, also when the server starts again. The same one completes it.
func TestRestoreInterrupted(t *testing.T) {
	t.Parallel()
	g := guarded{sqlite.File{Path: filepath.Join(t.TempDir(), "state.db"), UnsafeNoSync: true}, &atomic.Pointer[func(context.Context) error]{}}
	l := lend(t, EtcdStorages{}, g)
	s := l.create(t, named("a"))
	c := l.connect(t, s)
	again(t, "the certificate is not good", func() error { return refused(t, s, l.credentials(t, s)) })
	for i := range 3 * copyKeys {
		put(t, c, fmt.Sprintf("/registry/%04d", i), "x")
	}
	want := keysOf(t, c)
	file, _ := l.backup(t, "a")
	put(t, c, "/registry/0000", "y")
	last := revisionOf(t, c)

	// Of an error, after some were written: those that are deleted go first.
	g.guard(func(_ context.Context, n int32) error {
		if n > 5 {
			return errors.New("the disk is gone")
		}
		return nil
	})
	if _, err := l.restore(t.Context(), "a", file); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "the disk is gone") {
		t.Fatalf("with an error of the storage: %v", err)
	}
	l.waits(t, "the disk is gone")

	// Of the client, and of another one that comes meanwhile.
	begun := make(chan struct{}, 1)
	wait := func(ctx context.Context, n int32) error {
		if n == 2 {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	g.guard(wait)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := l.restore(ctx, "a", file); ended <- err }()
	<-begun
	if _, err := l.restore(t.Context(), "a", file); !apierrors.IsConflict(err) {
		t.Errorf("a second restore: %v, want a conflict", err)
	}
	if err := l.lent.Get().Resource("etcdstorages").Name("a").SubResource("backup").Do(t.Context()).Error(); !apierrors.IsConflict(err) {
		t.Errorf("a backup of what is not complete: %v, want a conflict", err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the restore succeeds")
	}
	l.waits(t, "context canceled")

	// Of the server.
	g.guard(wait)
	go func() {
		_, err := l.restore(context.WithoutCancel(t.Context()), "a", file)
		for apierrors.IsConflict(err) { // the last one has just been ended
			_, err = l.restore(context.WithoutCancel(t.Context()), "a", file)
		}
		ended <- err
	}()
	<-begun
	l.stop()
	if err := <-ended; err == nil {
		t.Error("the restore succeeds")
	}
	g.ask.Store(nil)
	l = lend(t, EtcdStorages{}, g)
	l.waits(t, "")
	l.mustRestore(t, "a", file)
	s = l.follow(t, "a", "at its new endpoint", func(s *v1alpha1.EtcdStorage) bool {
		return s.Status.Endpoint == l.endpoint(t) && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady)
	})
	c = l.connect(t, s)
	if diff := cmp.Diff(want, keysOf(t, c)); diff != "" {
		t.Errorf("after all (-want +got):\n%s", diff)
	}
	if now := revisionOf(t, c); now <= last {
		t.Errorf("the revision is %d, and %d was seen", now, last)
	}
}

// TestOneRestore: of two restores on servers that share a storage, the one that began last goes on, and an EtcdStorage that
// is deleted ends one.
func TestOneRestore(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	own, prefix := l.server.Stored()
	at := &store{client: own, prefix: prefix}
	p, first, err := at.take(t.Context(), "a", 1000)
	if err != nil {
		t.Fatal(err)
	}
	now, second, err := at.take(t.Context(), "a", 0)
	if err != nil || now.Offset != p.Offset || !now.Restoring {
		t.Fatalf("the second: %+v, %v", now, err)
	}
	if _, err := at.complete(t.Context(), "a", p, first); !errors.Is(err, backup.ErrOvertaken) {
		t.Errorf("the first: %v, want that it was overtaken", err)
	}
	if revision, err := at.complete(t.Context(), "a", now, second); err != nil || revision <= 1000 {
		t.Errorf("the second: %d, %v", revision, err)
	}
	_, third, err := at.take(t.Context(), "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at.empty(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := at.complete(t.Context(), "a", now, third); !errors.Is(err, backup.ErrOvertaken) {
		t.Errorf("after a deletion: %v, want that it was overtaken", err)
	}
}
