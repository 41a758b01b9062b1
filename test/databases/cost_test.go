//go:build unix

package databases

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/test/database"
)

// What a read of PostgreSQL costs must not grow with the table, whether PostgreSQL has looked at what the table holds or not.
const (
	keyBatches, keysPerBatch = 100, 100
	// mostBlocks are of 8 KiB. An index of so many keys has 150.
	mostBlocks = 60
)

// TestFollowing reads what another server has written.
func TestFollowing(t *testing.T) {
	t.Parallel()
	c, ctx := newCosts(t)
	follower := started(t, postgres.DB{URL: c.address})
	for analyzed := range c.analyzedOrNot(t) {
		from := put(ctx, t, c.writer, "/costs/first", "")
		events := follower.Watch(ctx, "/costs/", clientv3.WithPrefix(), clientv3.WithRev(from))
		for seen := int64(0); seen < 20; {
			for _, e := range (<-events).Events {
				seen = e.Kv.ModRevision - from
			}
			put(ctx, t, c.writer, "/costs/next", time.Now().String())
		}
		calls, blocks := c.of(ctx, t, "sum(COALESCE(octet_length(value)%OVER")
		if calls < 10 || blocks > mostBlocks {
			t.Errorf("analyzed %t: %d reads of changes, of %d blocks each; want at least 10, of at most %d", analyzed, calls, blocks, mostBlocks)
		}
	}
}

// TestPages reads a list in pages, all at one revision while others write, and keys are counted once at most.
func TestPages(t *testing.T) {
	t.Parallel()
	const pages, perPage = 20, 20
	c, ctx := newCosts(t)
	for analyzed := range c.analyzedOrNot(t) {
		from, at := "/costs/", int64(0)
		for range pages {
			r, err := c.writer.Get(ctx, from, clientv3.WithRange("/costs0"), clientv3.WithLimit(perPage), clientv3.WithRev(at))
			if err != nil || len(r.Kvs) != perPage {
				t.Fatalf("a page of %d: %v", perPage, err)
			}
			from, at = string(r.Kvs[perPage-1].Key)+"\x00", cmp.Or(at, r.Header.Revision)
			put(ctx, t, c.writer, "/elsewhere", "")
		}
		calls, blocks := c.of(ctx, t, "k.value%DISTINCT ON")
		if calls != pages || blocks > mostBlocks {
			t.Errorf("analyzed %t: %d reads of pages, of %d blocks each; want %d, of at most %d", analyzed, calls, blocks, pages, mostBlocks)
		}
		if counts, _ := c.of(ctx, t, "count(*)%DISTINCT ON"); counts > 1 {
			t.Errorf("analyzed %t: keys were counted %d times for %d pages, want once at most", analyzed, counts, pages)
		}
	}
}

// costs is a table of many keys, in a database that says what each query reads.
type costs struct {
	address string
	db      *sql.DB
	writer  *clientv3.Client
}

func newCosts(t *testing.T) (*costs, context.Context) {
	t.Helper()
	address := database.Postgres(t, "shared_preload_libraries=pg_stat_statements", "autovacuum=off").URL("costs")
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	t.Cleanup(cancel)
	c := &costs{address: address, writer: started(t, postgres.DB{URL: address}), db: database.Open(t, address)}
	database.Exec(t, address, "CREATE EXTENSION pg_stat_statements")
	for b := range keyBatches {
		var absent []clientv3.Cmp
		var puts []clientv3.Op
		for i := range keysPerBatch {
			key := fmt.Sprintf("/costs/%d/%d", b, i)
			absent, puts = append(absent, clientv3.Compare(clientv3.ModRevision(key), "=", 0)), append(puts, clientv3.OpPut(key, "value"))
		}
		if r, err := c.writer.Txn(ctx).If(absent...).Then(puts...).Commit(); err != nil || !r.Succeeded {
			t.Fatalf("batch %d: %v, %v", b, r, err)
		}
	}
	return c, ctx
}

// analyzedOrNot yields false, and true once PostgreSQL has looked at what the table holds. Costs are counted anew each time.
func (c *costs) analyzedOrNot(t *testing.T) iter.Seq[bool] {
	return func(yield func(bool) bool) {
		for _, analyzed := range []bool{false, true} {
			if analyzed {
				database.Exec(t, c.address, "VACUUM ANALYZE")
			}
			database.Exec(t, c.address, "SELECT pg_stat_statements_reset()")
			if !yield(analyzed) {
				return
			}
		}
	}
}

// of is how often queries were made whose text is like the one given, and how many blocks each has read.
func (c *costs) of(ctx context.Context, t *testing.T, like string) (calls, blocks int64) {
	t.Helper()
	if err := c.db.QueryRowContext(ctx, `SELECT COALESCE(sum(calls), 0), COALESCE((sum(shared_blks_hit + shared_blks_read) / sum(calls))::bigint, 0)
		FROM pg_stat_statements WHERE query LIKE '%' || $1 || '%' AND query NOT LIKE '%pg_stat_statements%'`, like).
		Scan(&calls, &blocks); err != nil {
		t.Fatal(err)
	}
	return calls, blocks
}
