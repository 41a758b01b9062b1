//go:build unix

package databases

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/test/database"
)

// TestCommitOrder: who lists, and watches from there, has all that is in the table in the end,
// however late some transactions are committed.
func TestCommitOrder(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		if lost := commitOrder(t, server.URL("ordered"), "sailplane_changes", e.storage); lost > 0 {
			t.Errorf("%d clients have lost writes", lost)
		}
	})
}

// TestCommitOrderOfKine: kine's own driver loses writes, which the same clients find.
func TestCommitOrderOfKine(t *testing.T) {
	t.Parallel()
	server := database.Postgres(t)
	for round := range 10 {
		if commitOrder(t, server.URL(fmt.Sprintf("ordered_%d", round)), "kine", kines) > 0 {
			return
		}
	}
	t.Error("nobody has lost a write, by which the test would find it")
}

const (
	orderPrefix  = "/ordered/"
	orderLast    = orderPrefix + "last"
	orderWriters = 8
	orderWrites  = 60
	orderReaders = 40
)

// commitOrder has writers on two servers write while clients list and watch, and returns how many
// clients do not have in the end what the table has.
func commitOrder(t *testing.T, address, table string, storage func(string) controlplane.Storage) (lost int) {
	t.Helper()
	clients := []*clientv3.Client{started(t, storage(address)), started(t, storage(address))}
	database.DelayCommits(t, address, table)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var writers, readers sync.WaitGroup
	for w := range orderWriters {
		writers.Go(func() { writeOrdered(ctx, t, clients[w%2], w) })
	}
	ends := make([]map[string]int64, orderReaders)
	for r := range orderReaders {
		readers.Go(func() { ends[r] = readOrdered(ctx, t, clients[r%2], time.Duration(r)*20*time.Millisecond) })
	}
	writers.Wait()
	last, err := clients[0].Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(orderLast), "=", 0)).
		Then(clientv3.OpPut(orderLast, "")).Else(clientv3.OpGet(orderLast)).Commit()
	if err != nil {
		t.Fatal(err)
	}
	readers.Wait()
	stored, err := clients[0].Get(ctx, orderPrefix, clientv3.WithPrefix(), clientv3.WithRev(last.Header.Revision))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for _, kv := range stored.Kvs {
		want[string(kv.Key)] = kv.ModRevision
	}
	for _, got := range ends {
		if !maps.Equal(got, want) {
			lost++
		}
	}
	return lost
}

// started is a client of a storage that runs until the test ends.
func started(t *testing.T, s controlplane.Storage) *clientv3.Client {
	t.Helper()
	b := s.Open()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// writeOrdered creates keys, and updates or deletes every second one.
func writeOrdered(ctx context.Context, t *testing.T, c *clientv3.Client, writer int) {
	t.Helper()
	for i := range orderWrites {
		key := fmt.Sprintf("%s%d/%d", orderPrefix, writer, i)
		revision := int64(0)
		for _, op := range []clientv3.Op{clientv3.OpPut(key, "a"), clientv3.OpPut(key, "b"), clientv3.OpDelete(key)}[:1+i%3] {
			r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(op).Else(clientv3.OpGet(key)).Commit()
			if err != nil || !r.Succeeded {
				t.Errorf("write %s: %v", key, err)
				return
			}
			revision = r.Header.Revision
		}
	}
}

// readOrdered lists after a pause and watches from there, and returns what it knows when it has seen
// the last key: the revisions of the keys.
func readOrdered(ctx context.Context, t *testing.T, c *clientv3.Client, pause time.Duration) map[string]int64 {
	t.Helper()
	time.Sleep(pause + rand.N(20*time.Millisecond)) // clients come at any time
	list, err := c.Get(ctx, orderPrefix, clientv3.WithPrefix())
	if err != nil {
		t.Errorf("list: %v", err)
		return nil
	}
	known := map[string]int64{}
	for _, kv := range list.Kvs {
		known[string(kv.Key)] = kv.ModRevision
	}
	for r := range c.Watch(ctx, orderPrefix, clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1)) {
		for _, e := range r.Events {
			key := string(e.Kv.Key)
			if known[key] = e.Kv.ModRevision; e.Type == clientv3.EventTypeDelete {
				delete(known, key)
			}
			if key == orderLast {
				return known
			}
		}
	}
	t.Errorf("the watch ended without the last key: %v", ctx.Err())
	return nil
}
