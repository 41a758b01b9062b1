//go:build unix

package databases

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/test/database"
)

// TestLostCommits: a database that goes on without its last commits is found out. No revision that
// was seen is used again, and who watches is told to begin anew.
func TestLostCommits(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		for name, change := range map[string]func(*testing.T, *database.Server){
			"a backup is restored": func(*testing.T, *database.Server) {},
			"another server takes over": func(t *testing.T, s *database.Server) {
				t.Helper()
				if e.name == "mariadb" {
					s.Settings = []string{"--server-id=2"}
					return
				}
				standBy(t, s)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testLostCommits(t, e, change)
			})
		}
	})
}

func testLostCommits(t *testing.T, e engine, change func(*testing.T, *database.Server)) {
	t.Helper()
	server := e.start(t)
	c := started(t, e.storage(server.URL("lost")))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	put(ctx, t, c, "/a", "kept")
	must(t, server.Stop())
	replica, err := server.Copy()
	must(t, err)
	must(t, server.Start())
	put(ctx, t, c, "/a", "lost")
	last := put(ctx, t, c, "/b", "lost")
	watch := c.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(last))
	if r := <-watch; r.Err() != nil || len(r.Events) == 0 {
		t.Fatalf("the watch begins with %v, %v", r.Events, r.Err())
	}
	must(t, server.Stop())
	server.Data = replica
	change(t, server)
	must(t, server.Start())
	for r := range watch {
		if len(r.Events) > 0 {
			t.Errorf("the watch goes on with %v", r.Events)
		}
		if err := r.Err(); err != nil {
			if !errors.Is(err, rpctypes.ErrCompacted) || r.CompactRevision <= last {
				t.Errorf("the watch ends with %v at %d, want that %d is compacted", err, r.CompactRevision, last)
			}
			break
		}
	}
	if ctx.Err() != nil {
		t.Fatal("the watch goes on as if nothing had happened")
	}
	got, err := c.Get(ctx, "/", clientv3.WithPrefix())
	if err != nil || got.Header.Revision <= last || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "kept" {
		t.Errorf("a list has %v, %v, want what the replica has, and a revision above %d", got, err, last)
	}
	if _, err := c.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(last)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("a list at the revision that was lost: %v", err)
	}
	if revision := put(ctx, t, c, "/c", "new"); revision <= got.Header.Revision {
		t.Errorf("the next write has revision %d after %d", revision, got.Header.Revision)
	}
}

// put writes, as often as the database takes to be back, and returns the revision.
func put(ctx context.Context, t *testing.T, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	for {
		r, err := c.Put(ctx, key, value)
		if err == nil {
			return r.Header.Revision
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("put %s: %v", key, err)
		}
	}
}

// standBy has a PostgreSQL begin as a standby that is promoted.
func standBy(t *testing.T, s *database.Server) {
	t.Helper()
	signal := filepath.Join(s.Data, "standby.signal")
	must(t, errors.Join(os.WriteFile(signal, nil, 0o600), os.Chmod(signal, 0o666)))
	must(t, s.Start())
	db := database.Open(t, s.URL("postgres"))
	for {
		var promoted bool
		if err := db.QueryRowContext(t.Context(), "SELECT pg_promote()").Scan(&promoted); err == nil && promoted {
			break
		} else if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	must(t, s.Stop())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
