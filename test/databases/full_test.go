//go:build linux

package databases

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/test/database"
)

// TestFullDisk: when no file of the database can grow any more, writes are refused with the reason, reads go
// on, and nothing that was acknowledged is lost. When there is room again, writes go on. MariaDB ends
// itself instead, and is started again.
func TestFullDisk(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		c := started(t, e.storage(server.URL("full")))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		kept := put(ctx, t, c, "/kept", "")
		random := make([]byte, 256<<10) // what does not get smaller
		_, _ = rand.Read(random)
		value := string(random)
		must(t, server.LimitFiles(ctx, database.Full))
		last, n := kept, 0
		var refused error
		for ; refused == nil && n < 2000; n++ {
			var r *clientv3.PutResponse
			if r, refused = c.Put(ctx, fmt.Sprintf("/large/%04d", n), value); refused == nil {
				last = r.Header.Revision
			}
		}
		if refused == nil {
			t.Fatalf("%d writes had room", n)
		}
		if e.name == "mariadb" { // which ends when it has no room to roll back
			must(t, server.Kill())
			must(t, server.Start())
		} else {
			if !strings.Contains(refused.Error(), "the disk is full") {
				t.Errorf("after %d writes: %v, want that the disk is full", n, refused)
			}
			got, err := c.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || got.Header.Revision < last || got.Count < int64(n) {
				t.Errorf("a read has %v, %v, want revision %d and %d keys", got, err, last, n)
			}
			must(t, server.LimitFiles(ctx, database.Free))
		}
		if next := put(ctx, t, c, "/freed", ""); next <= last {
			t.Errorf("the next write has revision %d after %d", next, last)
		}
		got, err := c.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count < int64(n+1) {
			t.Errorf("in the end there are %v, %v, want %d keys or more", got, err, n+1)
		}
	})
}

// TestReadOnly: a database that takes no writes for a while refuses them with the reason, and goes on.
func TestReadOnly(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		address := server.URL("readonly")
		c := started(t, e.storage(address))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		before := put(ctx, t, c, "/a", "1")
		on, off := `ALTER DATABASE readonly SET default_transaction_read_only = on`, `ALTER DATABASE readonly SET default_transaction_read_only = off`
		anew := `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'readonly' AND pid <> pg_backend_pid()`
		administration := server.URL("postgres")
		if e.name == "mariadb" {
			// Who has all rights may write even so.
			database.Exec(t, server.URL("mysql"), `CREATE USER modest@'127.0.0.1' IDENTIFIED BY 'modest'; GRANT ALL ON readonly.* TO modest@'127.0.0.1'`)
			c = started(t, e.storage(strings.Replace(address, strings.SplitN(strings.TrimPrefix(address, "mysql://"), "@", 2)[0], "modest:modest", 1)))
			on, off, anew = `SET GLOBAL read_only = 1`, `SET GLOBAL read_only = 0`, `DO 1`
			administration = server.URL("mysql")
		}
		database.Exec(t, administration, on)
		database.Exec(t, administration, anew)
		var refused error
		for refused == nil || !strings.Contains(refused.Error(), "takes no writes") {
			if _, refused = c.Put(ctx, "/a", "2"); ctx.Err() != nil {
				t.Fatalf("the write ends with %v, want that the database takes none", refused)
			}
		}
		if got, err := c.Get(ctx, "/a"); err != nil || len(got.Kvs) != 1 || got.Kvs[0].ModRevision < before {
			t.Errorf("a read has %v, %v", got, err)
		}
		database.Exec(t, administration, off)
		database.Exec(t, administration, anew)
		put(ctx, t, c, "/a", "3")
	})
}
