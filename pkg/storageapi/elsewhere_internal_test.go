package storageapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

func in(storage string) func(*v1alpha1.EtcdStorageSpec) {
	return func(s *v1alpha1.EtcdStorageSpec) { s.Storage = storage }
}

func newFile(t testing.TB) sqlite.File {
	return sqlite.File{Path: filepath.Join(t.TempDir(), "state.db"), UnsafeNoSync: true}
}

// ahead is a storage whose revisions are larger than those that others reach.
type ahead struct{ sqlite.File }

// Open implements controlplane.Storage.
func (a ahead) Open() controlplane.Backend { return a.OpenAbove(1 << 40) }

// reach connects to an EtcdStorage whose ConfigMap may have the authority of another server.
func (l *lender) reach(t testing.TB, name string) *clientv3.Client {
	t.Helper()
	s := l.follow(t, name, "at its new endpoint", func(s *v1alpha1.EtcdStorage) bool {
		return s != nil && s.Status.Endpoint == l.endpoint(t)
	})
	config := l.credentials(t, s)
	config.RootCAs.AppendCertsFromPEM(l.server.Authority().CurrentCABundleContent())
	return dial(t, s, config)
}

// whole takes a backup of the server.
func (l *lender) whole(ctx context.Context) ([]byte, error) {
	return l.lent.Get().AbsPath(backup.Path).MaxRetries(0).DoRaw(ctx)
}

// saved is a backup of a server with EtcdStorages in two storages, and what their clients had seen.
type saved struct {
	file    []byte
	want    map[string]map[string]string // by name
	last    map[string]int64
	archive ahead // what it was in, which was written to afterwards
}

// save takes a backup of a server with three EtcdStorages: in the server's own storage, in another one, and on its way from that.
func save(t *testing.T) saved {
	t.Helper()
	all := saved{want: map[string]map[string]string{}, last: map[string]int64{}, archive: ahead{newFile(t)}}
	l := lend(t, EtcdStorages{Storages: map[string]controlplane.Storage{"archive": all.archive}}, newFile(t), backup.Endpoint{})
	clients := map[string]*clientv3.Client{
		"own":     l.connect(t, l.create(t, named("own"))),
		"far":     l.connect(t, l.create(t, named("far", in("archive")))),
		"on-road": l.connect(t, l.create(t, named("on-road", in("archive")))),
	}
	for i := range 3 * copyKeys {
		put(t, clients["far"], fmt.Sprintf("/registry/%04d", i), "x")
	}
	for name, c := range clients {
		put(t, c, "/registry/x", "k8s:enc:aescbc:v1:key1:of "+name)
		lease, err := c.Grant(t.Context(), 3600)
		if err == nil {
			_, err = c.Put(t.Context(), "/events/x", "x", clientv3.WithLease(lease.ID))
		}
		if err != nil {
			t.Fatal(err)
		}
		all.want[name] = keysOf(t, c)
	}
	own, _ := l.server.Stored()
	at := &store{client: own, prefix: "/registry"}
	put(t, own, at.root("far")+"/registry/given-up", "of a copy")
	put(t, own, at.state("far"), "{}")
	move := func(name, to string) {
		if err := l.lent.Patch(types.MergePatchType).Resource("etcdstorages").Name(name).
			Body(fmt.Appendf(nil, `{"spec":{"storage":%q}}`, to)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	move("on-road", ownStorage)
	l.follow(t, "on-road", "moving", isMoving)
	var err error
	if all.file, err = l.whole(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, clients["far"], "/registry/later", "lost")
	put(t, clients["own"], "/registry/later", "lost")
	l.until(t, "on-road", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
	for name, c := range clients {
		all.last[name] = revisionOf(t, c)
	}
	l.stop()
	return all
}

// check finds everything in a server that was restored.
func (all saved) check(t *testing.T, l *lender) {
	t.Helper()
	for name, want := range all.want {
		c := l.reach(t, name)
		if diff := cmp.Diff(want, keysOf(t, c)); diff != "" {
			t.Errorf("%s after the restore (-want +got):\n%s", name, diff)
		}
		list, err := c.Get(t.Context(), "", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range list.Kvs {
			if kv.ModRevision <= all.last[name] || (kv.Lease != 0) != strings.HasPrefix(string(kv.Key), "/events/") {
				t.Errorf("%s: %s has revision %d and lease %d, where %d was seen", name, kv.Key, kv.ModRevision, kv.Lease, all.last[name])
			}
		}
		if list.Header.Revision <= all.last[name] {
			t.Fatalf("%s goes on at %d, where revision %d was seen", name, list.Header.Revision, all.last[name])
		}
		watch := c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(all.last[name]))
		if r := <-watch; !errors.Is(r.Err(), rpctypes.ErrCompacted) {
			t.Errorf("%s watches from before: %+v, want that it is compacted", name, r)
		}
		watch = c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1))
		put(t, c, "/registry/new", "x")
		if r := <-watch; r.Err() != nil || len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "/registry/new" {
			t.Errorf("%s watches from now on: %+v", name, r)
		}
		if _, err := c.Delete(t.Context(), "/registry/new"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWholeBackupElsewhere: a backup of a server has what EtcdStorages have in other storages. A server that was made
// of it lends all of it, and moves it to where it was.
func TestWholeBackupElsewhere(t *testing.T) {
	t.Parallel()
	all := save(t)
	for name, c := range map[string]struct {
		reason  string
		archive controlplane.Storage
	}{
		"lost":  {"the other storage was lost, too, and is empty now", memory.Store{}},
		"there": {"the other storage was not lost: it goes back to the backup with the others", all.archive},
		"none":  {"the operator names it no more", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all.restored(t, c.archive)
		})
	}
}

func (all saved) restored(t *testing.T, archive controlplane.Storage) {
	t.Helper()
	own := newFile(t)
	r, err := backup.Restore(t.Context(), bytes.NewReader(all.file), own, backup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(3*copyKeys + 6); r.Info.Lent.Objects != n || len(r.Info.Encrypted) != 0 || r.Info.Expiring < 3 {
		t.Errorf("the backup says %+v, want %d keys of EtcdStorages", r.Info, n)
	}
	if archive == nil {
		l := lend(t, EtcdStorages{}, own)
		l.until(t, "far", metav1.ConditionFalse, v1alpha1.ReasonStorageUnknown)
		all.check(t, l)
		l.stop()
		l = lend(t, EtcdStorages{}, own) // nothing arrives twice
		s := l.until(t, "far", metav1.ConditionFalse, v1alpha1.ReasonStorageUnknown)
		if s.Status.Storage != ownStorage || s.Status.PreviousStorage != "" {
			t.Errorf("the status is %+v", s.Status)
		}
		all.check(t, l)
		if err := l.lent.Patch(types.MergePatchType).Resource("etcdstorages").Name("far").
			Body([]byte(`{"spec":{"storage":"default"}}`)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		l.until(t, "far", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
		return
	}
	l := lend(t, EtcdStorages{Storages: map[string]controlplane.Storage{"archive": archive}}, own)
	for name, at := range map[string]string{"own": ownStorage, "far": "archive", "on-road": ownStorage} {
		l.follow(t, name, "ready in "+at, func(s *v1alpha1.EtcdStorage) bool {
			return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady) && s.Status.Storage == at &&
				s.Status.PreviousStorage == ""
		})
	}
	all.check(t, l)
	stored, _ := l.server.Stored()
	at := &store{client: stored, prefix: "/registry"}
	if p, err := at.past(t.Context(), "far"); err != nil || p.modified != 0 {
		t.Errorf("the server's own storage knows %+v, %v, of what has moved on", p, err)
	}
}

// awayStore is a storage that may be away.
type awayStore struct {
	memory.Store
	away *atomic.Pointer[string] // the call that fails; nil: none
}

type awayBackend struct {
	controlplane.Backend
	awayStore
}

type awayKV struct {
	clientv3.KV
	awayStore
}

var errAway = errors.New("it is away")

func (s awayStore) err(call string) error {
	if fails := s.away.Load(); fails != nil && *fails == call {
		return errAway
	}
	return nil
}

// Open implements controlplane.Storage.
func (s awayStore) Open() controlplane.Backend { return awayBackend{s.Store.Open(), s} }

// Client implements controlplane.Backend.
func (b awayBackend) Client() (*clientv3.Client, error) {
	c, err := b.Backend.Client()
	if err == nil {
		c.KV = awayKV{c.KV, b.awayStore}
	}
	return c, err
}

// Get implements clientv3.KV.
func (k awayKV) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := k.err("Get"); err != nil {
		return nil, err
	}
	return k.KV.Get(ctx, key, o...)
}

// GetStream implements clientv3.KV.
func (k awayKV) GetStream(ctx context.Context, key string, o ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	if err := k.err("GetStream"); err != nil {
		return nil, err
	}
	return k.KV.GetStream(ctx, key, o...)
}

// TestWholeBackupAway: a backup fails if something that belongs in it cannot be read, and says which storage that is, and of whom.
func TestWholeBackupAway(t *testing.T) {
	t.Parallel()
	archive := awayStore{away: &atomic.Pointer[string]{}}
	own := newFile(t)
	l := lend(t, EtcdStorages{Storages: map[string]controlplane.Storage{"archive": archive}}, own)
	put(t, l.connect(t, l.create(t, named("a", in("archive")))), "/registry/x", "x")
	refused := func(name, says string) {
		t.Helper()
		_, err := backup.Write(t.Context(), l.server, io.Discard)
		for _, part := range []string{`EtcdStorage "a"`, `storage "archive"`, says} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want it refused with %q", name, err, part)
			}
		}
	}
	for call, says := range map[string]string{
		"Get": "it is away: take a backup when it can", "GetStream": "it is away: take another backup",
	} {
		archive.away.Store(&call)
		refused(call, says)
	}
	archive.away.Store(nil)
	if info, err := backup.Write(t.Context(), l.server, io.Discard); err != nil || info.Lent.Objects != 1 {
		t.Errorf("when it is there again: %+v, %v", info.Lent, err)
	}
	l.stop()
	l = lend(t, EtcdStorages{}, own)
	refused("not named", "name it again (storageAPI.storages)")
}
