//go:build unix

package databases

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/test/database"
)

// TestFollowing: what a server reads of PostgreSQL when another one has written does not grow with the table, whether
// PostgreSQL has looked at what the table holds or not.
func TestFollowing(t *testing.T) {
	t.Parallel()
	const batches, perBatch, most = 100, 100, 60 // blocks of 8 KiB; an index of so many keys has 150
	server := database.Postgres(t, "shared_preload_libraries=pg_stat_statements", "autovacuum=off")
	address := server.URL("following")
	writer, follower := started(t, postgres.DB{URL: address}), started(t, postgres.DB{URL: address})
	db := database.Open(t, address)
	database.Exec(t, address, "CREATE EXTENSION pg_stat_statements")
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for b := range batches {
		var absent []clientv3.Cmp
		var puts []clientv3.Op
		for i := range perBatch {
			key := fmt.Sprintf("/following/%d/%d", b, i)
			absent, puts = append(absent, clientv3.Compare(clientv3.ModRevision(key), "=", 0)), append(puts, clientv3.OpPut(key, "value"))
		}
		if r, err := writer.Txn(ctx).If(absent...).Then(puts...).Commit(); err != nil || !r.Succeeded {
			t.Fatalf("batch %d: %v, %v", b, r, err)
		}
	}
	for _, analyze := range []bool{false, true} {
		if analyze {
			database.Exec(t, address, "ANALYZE")
		}
		database.Exec(t, address, "SELECT pg_stat_statements_reset()")
		from := put(ctx, t, writer, "/following/first", "")
		events := follower.Watch(ctx, "/following/", clientv3.WithPrefix(), clientv3.WithRev(from))
		for seen := int64(0); seen < 20; {
			for _, e := range (<-events).Events {
				seen = e.Kv.ModRevision - from
			}
			put(ctx, t, writer, "/following/next", time.Now().String())
		}
		var calls, blocks int64
		if err := db.QueryRowContext(ctx, `SELECT sum(calls), (sum(shared_blks_hit + shared_blks_read) / sum(calls))::bigint
			FROM pg_stat_statements WHERE query LIKE '%sum(COALESCE(octet_length(value)%OVER%' AND query NOT LIKE '%pg_stat_statements%'`).
			Scan(&calls, &blocks); err != nil {
			t.Fatal(err)
		}
		if calls < 10 || blocks > most {
			t.Errorf("analyzed %t: %d reads of changes, of %d blocks each; want at least 10, of at most %d", analyze, calls, blocks, most)
		}
	}
}
