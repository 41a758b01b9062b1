package etcdclient_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdclient"
)

// TestUnreachable: calls to an etcd that nobody can reach do not take all the time that
// a slow one has, and say what is wrong.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := etcdclient.NewRemote(c, time.Hour)
	kv, lease := r.KV(), r.Lease()
	defer lease.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		for name, call := range map[string]func() error{
			"get":   func() error { _, err := kv.Get(ctx, "a"); return err },
			"put":   func() error { _, err := kv.Put(ctx, "a", "b"); return err },
			"txn":   func() error { _, err := kv.Txn(ctx).Then(clientv3.OpGet("a")).Commit(); return err },
			"grant": func() error { _, err := lease.Grant(ctx, 60); return err },
		} {
			err := call()
			if ctx.Err() != nil {
				t.Fatalf("a %s waits for a member that cannot be reached", name)
			}
			if code := status.Code(err); code != codes.Unavailable && code != codes.Unknown || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("a %s ends in %v (%v), want that the connection is refused", name, err, code)
			}
		}
	}
}
