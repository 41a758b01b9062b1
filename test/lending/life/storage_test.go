//go:build unix

package life

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/test/database"
	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// other is the name of the storage that is not the lender's own.
const other = "other"

// inMemory is the URL of a storage that ends with its process.
const inMemory = "memory"

// storage is what a lender keeps its objects in, and the other one that it lends.
type storage struct {
	url   string
	other string
	// password is that of a database. The process list shows URLs.
	password string
}

func storages() map[string]func(*testing.T) storage {
	return map[string]func(*testing.T) storage{"memory": memory, "sqlite": sqlite, "postgres": postgres, "etcd": etcd}
}

func memory(t *testing.T) storage {
	return storage{url: inMemory, other: "sqlite:" + filepath.Join(t.TempDir(), "other.db")}
}

func sqlite(t *testing.T) storage {
	return storage{url: "sqlite:" + filepath.Join(t.TempDir(), "state.db"), other: "etcd:" + filepath.Join(t.TempDir(), "etcd")}
}

func postgres(t *testing.T) storage {
	u, err := url.Parse(database.Postgres(t).URL("lender"))
	must(t, err)
	u.User = url.User(u.User.Username())
	return storage{url: u.String(), other: "sqlite:" + filepath.Join(t.TempDir(), "other.db"), password: database.Password}
}

func etcd(t *testing.T) storage {
	p, client, err := programs.StartEtcd(t.TempDir())
	must(t, err)
	ends(t, func() *behind.Process { return p })
	return storage{url: "etcd+" + client, other: inMemory}
}

// keys are all that are in a storage that no server has open. They are found through a server of all of it.
func keys(t *testing.T, url, password string) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "life") // that of a test is too long for the path of a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := "unix://" + filepath.Join(dir, "etcd.sock")
	command := exec.Command("sailplane", "storage", "serve", "--storage", url, "--listen", socket)
	command.Env = append(os.Environ(), "SAILPLANE_STORAGE_PASSWORD="+password)
	p, err := behind.Start(filepath.Join(dir, "log"), command)
	must(t, err)
	ends(t, func() *behind.Process { return p })
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{socket}, Context: t.Context()})
	must(t, err)
	defer client.Close()
	var all []string
	until(t, url+" is served", func(ctx context.Context) error {
		r, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range r.Kvs {
			all = append(all, string(kv.Key))
		}
		return nil
	})
	return all
}

// holdsNothing wants no key of the borrower in a storage, which has others.
func holdsNothing(t *testing.T, url, password string, others bool) {
	t.Helper()
	all := keys(t, url, password)
	for _, key := range all {
		if strings.Contains(key, name) || strings.Contains(key, "/lent/") {
			t.Errorf("%s has the key %s", url, key)
		}
	}
	if others && len(all) == 0 {
		t.Errorf("%s has no key at all, and not those of the lender", url)
	}
}
