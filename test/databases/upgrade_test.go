//go:build unix

package databases

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/mysql"
	"github.com/k3s-io/kine/pkg/drivers/pgsql"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
	"github.com/sailplane-dev/sailplane/test/database"
)

// kines is a database with kine's own driver.
func kines(url string) controlplane.Storage { return ofKine{url} }

type ofKine struct{ url string }

func (ofKine) Traits() controlplane.Traits { return controlplane.Traits{Shared: true} }

func (k ofKine) Open() controlplane.Backend {
	driver := kine.Driver{
		Name: "kine", Remote: kine.Remote{URL: k.url}, Schemes: []string{"postgres"}, Limits: "the order of commits", New: pgsql.New,
		Config: func(u *url.URL, config *drivers.Config) error {
			config.DataSourceName = strings.TrimPrefix(u.String(), "postgres://")
			return nil
		},
	}
	if strings.HasPrefix(k.url, "mysql://") {
		driver.Schemes, driver.New = []string{"mysql"}, mysql.New
		driver.Config = func(u *url.URL, config *drivers.Config) error {
			password, _ := u.User.Password()
			config.DataSourceName = fmt.Sprintf("%s:%s@tcp(%s)%s", u.User.Username(), password, u.Host, u.Path)
			return nil
		}
	}
	return kine.Open(driver)
}

// TestDatabaseOfKine: a database that kine wrote is served with its keys, revisions and history, and
// kine cannot write to it any more.
func TestDatabaseOfKine(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		address := server.URL("kines")
		b := kines(address).Open()
		if err := b.Start(ctx); err != nil {
			t.Fatal(err)
		}
		old, err := b.Client()
		if err != nil {
			t.Fatal(err)
		}
		write := func(c *clientv3.Client, key, value string, before int64, lease clientv3.LeaseID) (int64, error) {
			t.Helper()
			r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", before)).
				Then(clientv3.OpPut(key, value, clientv3.WithLease(lease))).Else(clientv3.OpGet(key)).Commit()
			if err != nil {
				return 0, err
			}
			if !r.Succeeded {
				return 0, fmt.Errorf("%s is not at revision %d", key, before)
			}
			return r.Header.Revision, nil
		}
		must := func(revision int64, err error) int64 {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return revision
		}
		a := must(write(old, "/a", "1", 0, 0))
		updated := must(write(old, "/a", "2", a, 0))
		gone := must(write(old, "/gone", "1", 0, 0))
		if _, err := old.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("/gone"), "=", gone)).Then(clientv3.OpDelete("/gone")).Else(clientv3.OpGet("/gone")).Commit(); err != nil {
			t.Fatal(err)
		}
		must(write(old, "/ends", "1", 0, 3)) // kine's leases are seconds
		list, err := old.Get(ctx, "/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Stop(ctx); err != nil {
			t.Fatal(err)
		}

		c := started(t, e.storage(address))
		got, err := c.Get(ctx, "/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for i, kv := range got.Kvs {
			if i >= len(list.Kvs) || string(kv.Key) != string(list.Kvs[i].Key) || string(kv.Value) != string(list.Kvs[i].Value) ||
				kv.ModRevision != list.Kvs[i].ModRevision || kv.CreateRevision != list.Kvs[i].CreateRevision {
				t.Errorf("key %d is %v, want %v", i, kv, list.Kvs)
			}
		}
		if got.Header.Revision < list.Header.Revision || len(got.Kvs) != len(list.Kvs) {
			t.Errorf("the list is %v, want %v", got, list)
		}
		before, err := c.Get(ctx, "/a", clientv3.WithRev(updated-1))
		if err != nil || len(before.Kvs) != 1 || string(before.Kvs[0].Value) != "1" {
			t.Errorf("the key was %v before, %v", before, err)
		}
		events := ""
		for r := range c.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(updated), clientv3.WithPrevKV()) {
			for _, e := range r.Events {
				events += fmt.Sprintf(" %s%s", e.Type, e.Kv.Key)
			}
			if err := r.Err(); err != nil || strings.HasSuffix(events, "DELETE/ends") {
				break
			}
		}
		if want := " PUT/a PUT/gone DELETE/gone PUT/ends DELETE/ends"; events != want {
			t.Errorf("the events are%s, want%s", events, want)
		}
		last := put(ctx, t, c, "/a", "3")
		if last != got.Header.Revision+2 {
			t.Errorf("the next write has revision %d, after %d and an end", last, got.Header.Revision)
		}

		if e.name == "postgres" {
			fresh := server.URL("fresh")
			started(t, e.storage(fresh))
			if got, want := vacuumed(ctx, t, address), vacuumed(ctx, t, fresh); got != want || want == "" {
				t.Errorf("vacuum has the settings %q for the table, and %q for one that is new", got, want)
			}
		}

		b = kines(address).Open()
		defer func() { _ = b.Stop(context.WithoutCancel(ctx)) }()
		short, end := context.WithTimeout(ctx, 10*time.Second)
		defer end()
		if err := b.Start(short); err == nil {
			t.Error("kine starts beside us")
		} else {
			t.Logf("kine does not start: %v", err)
		}
		if list, err := c.Get(ctx, "/", clientv3.WithPrefix()); err != nil || list.Header.Revision != last {
			t.Errorf("after kine has tried the list is %v, %v", list, err)
		}
	})
}

// vacuumed is how PostgreSQL makes space of changes free again, where the table says so.
func vacuumed(ctx context.Context, t *testing.T, address string) (settings string) {
	t.Helper()
	if err := database.Open(t, address).QueryRowContext(ctx,
		"SELECT COALESCE(array_to_string(reloptions, ' '), '') FROM pg_class WHERE relname = 'sailplane_changes'").Scan(&settings); err != nil {
		t.Fatal(err)
	}
	return settings
}
