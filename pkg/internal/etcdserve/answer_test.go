package etcdserve_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// serve serves a storage in memory until the test ends.
func serve(t *testing.T, l lent) *backend {
	t.Helper()
	l.Storage = memory.Store{}
	b := l.Open().(*backend)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) }) // a storage in memory has nothing to lose
	return b
}

// patient has its owner know when an answer was sent.
type patient struct {
	etcdserve.Everything
	sent chan int64
}

// Read implements etcdserve.Keeper.
func (p patient) Read(context.Context, etcdserve.Reading) (func(int64), error) {
	return func(bytes int64) { p.sent <- bytes }, nil
}

// deaf is a connection that is not read any more once something has come, until it may be.
type deaf struct {
	net.Conn
	armed atomic.Bool
	came  chan struct{}
	once  sync.Once
	open  chan struct{}
}

// Read implements net.Conn.
func (d *deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.armed.Load() && n > 1000 { // no frame beside data is as large
		d.once.Do(func() { close(d.came) })
		<-d.open
	}
	return n, err
}

// TestUntaken: an answer counts as being read for as long as its client does not take it.
func TestUntaken(t *testing.T) {
	t.Parallel()
	sent := make(chan int64, 1)
	b := serve(t, lent{keeper: func(e etcdserve.Everything) etcdserve.Keeper { return patient{e, sent} }})
	d := &deaf{came: make(chan struct{}), open: make(chan struct{})}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{b.address}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, address string) (conn net.Conn, err error) {
			d.Conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return d, err
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const size = 1 << 20
	if _, err := c.Put(t.Context(), "k", strings.Repeat("x", size)); err != nil {
		t.Fatal(err)
	}
	d.armed.Store(true)
	answered := make(chan error, 1)
	go func() {
		_, err := c.Get(t.Context(), "k")
		answered <- err
	}()
	<-d.came
	select {
	case n := <-sent:
		t.Errorf("before its client has taken the answer, %d bytes count as sent", n)
		sent <- n
	default:
	}
	close(d.open)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if n := <-sent; n < size {
		t.Errorf("%d bytes were read, want %d or more", n, size)
	}
	if _, err := c.Get(t.Context(), "none"); err != nil {
		t.Fatal(err)
	}
	if n := <-sent; n > size {
		t.Errorf("a small answer counts as %d bytes", n)
	}
}

// TestLargeAnswers: what is larger than an answer may be comes in parts, or not at all.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	b := serve(t, lent{maxAnswer: 200 << 10, keeper: func(e etcdserve.Everything) etcdserve.Keeper { return large{e} }})
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	const all = 1000
	for n := range all {
		if _, err := c.Put(t.Context(), fmt.Sprintf("k%04d", n), strings.Repeat("x", 1<<10)); err != nil {
			t.Fatal(err)
		}
	}
	first, err := c.Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithLimit(all))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(first.Kvs); n == 0 || n > 250 || !first.More || first.Count != all {
		t.Errorf("%d keys of %d, more: %v, want some, and that there are more of %d", n, first.Count, first.More, all)
	}
	if _, err := c.Delete(t.Context(), "k0999"); err != nil {
		t.Fatal(err)
	}
	got, last := len(first.Kvs), first
	for last.More {
		from := string(last.Kvs[len(last.Kvs)-1].Key) + "\x00"
		last, err = c.Get(t.Context(), from, clientv3.WithRange("l"), clientv3.WithLimit(all), clientv3.WithRev(first.Header.Revision))
		if err != nil {
			t.Fatal(err)
		}
		got += len(last.Kvs)
	}
	if got != all {
		t.Errorf("%d keys in all parts, want %d", got, all)
	}
	for what, ask := range map[string]func() error{
		"a range without a limit": func() error { _, err := c.Get(t.Context(), "k", clientv3.WithPrefix()); return err },
		"a transaction": func() error {
			_, err := c.Txn(t.Context()).Then(clientv3.OpGet("k", clientv3.WithPrefix())).Commit()
			return err
		},
		"a deletion that returns what there was": func() error {
			_, err := c.Delete(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithPrevKV())
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "too large") || errors.Is(err, rpctypes.ErrRequestTooLarge) {
			t.Errorf("%s: %v, want it refused as too large", what, err)
		}
	}
	stream, err := c.GetStream(t.Context(), "k", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if whole, err := clientv3.GetStreamToGetResponse(stream); err != nil || len(whole.Kvs) != all-1 {
		t.Errorf("a stream has %d keys, %v, want %d", len(whole.Kvs), err, all-1)
	}
	counted, err := c.Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || counted.Count != all-1 {
		t.Errorf("%v, %v, want %d counted", counted, err, all-1)
	}
}

// large has more than fits into an answer.
type large struct{ etcdserve.Everything }

// Size implements etcdserve.Keeper.
func (large) Size(context.Context) (int64, error) { return 1 << 30, nil }
