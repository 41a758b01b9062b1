package storageapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// TestIsolated: two tenants with the same keys do not meet, whatever they ask for, and the
// server's own objects are nobody's.
func TestIsolated(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	a, b := l.connect(t, l.create(t, named("a"))), l.connect(t, l.create(t, named("b")))
	put(t, a, "/registry/x", "a")
	put(t, b, "/registry/x", "b")
	put(t, b, "/registry/y", "b")
	if diff := cmp.Diff(map[string]string{"/registry/x": "a"}, keysOf(t, a)); diff != "" {
		t.Errorf("what a sees (-want +got):\n%s", diff)
	}
	// Ranges that are open, or whose ends are beside everything.
	for _, end := range []string{"\x00", "\xff\xff\xff\xff", "/registry0"} {
		for _, key := range []string{"\x00", "/registry/"} {
			r, err := a.Get(t.Context(), key, clientv3.WithRange(end))
			if err != nil || r.Count != 1 || string(r.Kvs[0].Value) != "a" {
				t.Errorf("a range from %q to %q: %+v, %v, want a's key alone", key, end, r, err)
			}
		}
	}
	watch := a.Watch(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(1), clientv3.WithPrevKV())
	if r, err := a.Delete(t.Context(), "\x00", clientv3.WithFromKey()); err != nil || r.Deleted != 1 {
		t.Errorf("delete everything: %+v, %v, want one key deleted", r, err)
	}
	want := map[string]string{"/registry/x": "b", "/registry/y": "b"}
	if diff := cmp.Diff(want, keysOf(t, b)); diff != "" {
		t.Errorf("what b sees after a has deleted everything (-want +got):\n%s", diff)
	}
	var events []string
	for len(events) < 2 {
		for _, e := range (<-watch).Events {
			events = append(events, e.Type.String()+" "+string(e.Kv.Key)+" "+string(e.Kv.Value))
		}
	}
	if diff := cmp.Diff([]string{"PUT /registry/x a", "DELETE /registry/x "}, events); diff != "" {
		t.Errorf("a's events (-want +got):\n%s", diff)
	}
}

// TestCompactedAlone: what one tenant compacts, the other still has.
func TestCompactedAlone(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	a, b := l.connect(t, l.create(t, named("a"))), l.connect(t, l.create(t, named("b")))
	first, err := b.Put(t.Context(), "k", "1")
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, "k", "2")
	last, err := a.Put(t.Context(), "k", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Compact(t.Context(), last.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Compact(t.Context(), last.Header.Revision); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("the same again: %v, want that it is compacted", err)
	}
	if _, err := a.Compact(t.Context(), last.Header.Revision+100); !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("the future: %v, want that it is that", err)
	}
	if _, err := a.Get(t.Context(), "k", clientv3.WithRev(first.Header.Revision)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("a's history: %v, want that it is compacted", err)
	}
	r := <-a.Watch(t.Context(), "k", clientv3.WithRev(first.Header.Revision))
	if !r.Canceled || r.CompactRevision != last.Header.Revision {
		t.Errorf("a's watch of it: %+v, want that it is compacted", r)
	}
	if r, err := b.Get(t.Context(), "k", clientv3.WithRev(first.Header.Revision)); err != nil || string(r.Kvs[0].Value) != "1" {
		t.Errorf("b's history: %+v, %v, want it as it was", r, err)
	}
}

// TestTenantLimits: a tenant has what its object says, with etcd's own errors, and more when
// that is raised.
func TestTenantLimits(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{Max: Limits{Keys: 10, Bytes: 1 << 16, ValueBytes: 1 << 15, Watches: 2}}, nil)
	three := int64(3)
	s := l.create(t, named("a", func(s *v1alpha1.EtcdStorageSpec) { s.Limits.Keys = &three }))
	c := l.connect(t, s)
	for _, key := range []string{"1", "2", "3"} {
		put(t, c, key, "x")
	}
	create := func(key, value string) error {
		_, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Commit()
		return err
	}
	if err := create("4", "x"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("one key too many: %v, want %v", err, rpctypes.ErrNoSpace)
	}
	there, err := c.Get(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	same := clientv3.Compare(clientv3.ModRevision("1"), "=", there.Kvs[0].ModRevision)
	if r, err := c.Txn(t.Context()).If(same).Then(clientv3.OpPut("1", "y")).Commit(); err != nil || !r.Succeeded {
		t.Errorf("an update where there is no room for a key: %+v, %v", r, err)
	}
	l.until(t, "a", metav1.ConditionFalse, v1alpha1.ReasonLimitReached)
	if err := l.lent.Patch("application/merge-patch+json").Resource("etcdstorages").Name("a").Body([]byte(`{"spec":{"limits":null}}`)).
		Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	again(t, "the raised limit has no effect", func() error { return create("4", "x") })
	if err := create("5", string(make([]byte, 1<<15+1))); !errors.Is(err, rpctypes.ErrRequestTooLarge) {
		t.Errorf("a large value: %v, want %v", err, rpctypes.ErrRequestTooLarge)
	}
	put(t, c, "1", string(make([]byte, 1<<15)))
	if err := create("5", string(make([]byte, 1<<15))); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("too many bytes: %v, want %v", err, rpctypes.ErrNoSpace)
	}
	if _, err := c.Delete(t.Context(), "1"); err != nil {
		t.Errorf("make room: %v", err)
	}
	again(t, "there is no room after a deletion", func() error { return create("5", "x") })
	for range 2 {
		if r := <-c.Watch(t.Context(), "1", clientv3.WithCreatedNotify()); r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	if r := <-c.Watch(t.Context(), "1", clientv3.WithCreatedNotify()); !r.Canceled {
		t.Errorf("one watch too many: %+v, want it refused", r)
	}
	l.until(t, "a", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
	l.follow(t, "a", "said to have 4 keys", func(s *v1alpha1.EtcdStorage) bool {
		return s != nil && s.Status.Used != nil && *s.Status.Used == v1alpha1.EtcdStorageUsage{Keys: 4, Bytes: 8}
	})
}

// TestDeleted: with its object, a tenant loses its connections, its certificate and its
// data, unless that is to be kept. One of the same name begins with nothing.
func TestDeleted(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	for _, keep := range []bool{false, true} {
		name := map[bool]string{false: "gone", true: "kept"}[keep]
		s := l.create(t, named(name, func(s *v1alpha1.EtcdStorageSpec) { s.KeepData = keep }))
		old, credentials := l.connect(t, s), l.credentials(t, s)
		again(t, "the certificate is not good", func() error { return refused(t, s, credentials) })
		for _, key := range []string{"1", "2", "3"} {
			put(t, old, key, "x")
		}
		begun := time.Now()
		if err := l.lent.Delete().Resource("etcdstorages").Name(name).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		if !keep { // what has it looked at again is no reason to look for its data too early
			l.label(t, name)
		}
		l.follow(t, name, "gone", func(s *v1alpha1.EtcdStorage) bool { return s == nil })
		if took := time.Since(begun); !keep && took < settled {
			t.Errorf("%s is gone after %v: another server may have had a write on its way", name, took)
		}
		if _, err := l.core.CoreV1().Secrets("default").Get(t.Context(), name+"-client", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the Secret: %v, want it deleted", err)
		}
		s = l.create(t, named(name))
		if got := len(keysOf(t, l.connect(t, s))); keep && got != 3 || !keep && got != 0 {
			t.Errorf("%s: a new one has %d keys", name, got)
		}
		if err := refused(t, s, credentials); err == nil {
			t.Error("the certificate of a deleted one is good for the new one")
		}
	}
}

// label changes an EtcdStorage without a meaning.
func (l *lender) label(t *testing.T, name string) {
	t.Helper()
	patch := l.lent.Patch(types.MergePatchType).Resource("etcdstorages").Name(name).Body([]byte(`{"metadata":{"labels":{"a":"b"}}}`))
	if err := patch.Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// refused returns why a client that connects with credentials gets nothing, or nil.
func refused(t *testing.T, s *v1alpha1.EtcdStorage, credentials *tls.Config) error {
	t.Helper()
	config := credentials.Clone()
	config.NextProtos = []string{"h2"}
	c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.Status.Endpoint, "https://"))
	if err != nil {
		return err
	}
	defer c.Close()
	// An HTTP/2 server begins with its settings.
	_, err = c.Read(make([]byte, 1))
	return err
}

// TestNothingElse: calls that are not promised are answered as those of a server that
// does not know them.
func TestNothingElse(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	c := l.connect(t, l.create(t, named("a")))
	for name, call := range map[string]func() error{
		"auth":        func() error { _, err := c.AuthStatus(t.Context()); return err },
		"users":       func() error { _, err := c.UserList(t.Context()); return err },
		"member add":  func() error { _, err := c.MemberAdd(t.Context(), []string{"http://127.0.0.1:1"}); return err },
		"alarms":      func() error { _, err := c.AlarmList(t.Context()); return err },
		"leases":      func() error { _, err := c.Leases(t.Context()); return err },
		"revoke":      func() error { _, err := c.Revoke(t.Context(), 1); return err },
		"move leader": func() error { _, err := c.MoveLeader(t.Context(), 1); return err },
		"nested": func() error {
			_, err := c.Txn(t.Context()).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("x", "y")}, nil)).Commit()
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v, want Unimplemented", name, err)
		}
	}
}

// TestTakenSecret: a Secret of somebody else is never overwritten, and the object says so.
func TestTakenSecret(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{}, nil)
	s := named("a")
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a-client"}, StringData: map[string]string{"mine": "x"}}
	if _, err := l.core.CoreV1().Secrets("default").Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.lent.Post().Resource("etcdstorages").Body(s).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	l.until(t, "a", metav1.ConditionFalse, v1alpha1.ReasonDestinationTaken)
	if err := l.core.CoreV1().Secrets("default").Delete(t.Context(), "a-client", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.until(t, "a", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
}

// told is a connection that tells of its end.
type told struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c told) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestConnectionAge: no connection lasts, not even one with a watch, which misses nothing.
func TestConnectionAge(t *testing.T) {
	t.Parallel()
	l := lend(t, EtcdStorages{ConnectionAge: 100 * time.Millisecond}, nil)
	s := l.create(t, named("a"))
	var ends sync.Map // of connections, by number
	var opened atomic.Int64
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Status.Endpoint}, TLS: l.credentials(t, s), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			end := make(chan struct{})
			ends.Store(opened.Add(1), end)
			return told{c, sync.OnceFunc(func() { close(end) })}, nil
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	watch := c.Watch(t.Context(), "", clientv3.WithPrefix())
	for i := range int64(3) {
		put(t, c, "key", strconv.FormatInt(i, 10))
		r := <-watch
		if len(r.Events) != 1 || string(r.Events[0].Kv.Value) != strconv.FormatInt(i, 10) {
			t.Fatalf("the watch has %v %v, want one event of %d", r.Events, r.Err(), i)
		}
		end, _ := ends.Load(i + 1)
		select {
		case <-end.(chan struct{}):
		case <-time.After(time.Minute):
			t.Fatalf("connection %d of %d has not ended", i+1, opened.Load())
		}
	}
}
