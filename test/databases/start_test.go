//go:build unix

package databases

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/mysql"
	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/test/database"
)

// wrong is the password of logins that are refused.
const wrong = "wr0ng/p4ssw rd"

// TestFailingStartsSayNoPassword: neither errors nor logs of starts that fail have a password.
func TestFailingStartsSayNoPassword(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		right, err := url.Parse(e.start(t).URL("login"))
		if err != nil {
			t.Fatal(err)
		}
		refused, nobody := *right, *right
		refused.User = url.UserPassword("sailplane", wrong)
		nobody.Host = unusedAddress(t)
		for name, c := range map[string]struct{ url, want string }{
			"a wrong password":  {refused.String(), "refuses the user"},
			"nobody answers":    {nobody.String(), "no answer within"},
			"no URL":            {strings.Replace(right.String(), "://", "://%zz", 1), "percent-encoded"},
			"a wrong parameter": {database.With(right.String(), "connect_timeout=x&timeout=x"), ""},
		} {
			t.Run(name, func(t *testing.T) {
				log := &bytes.Buffer{}
				ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(10))))
				s := quick(e.storage(c.url))
				b := s.Open()
				err := b.Start(ctx)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("it fails with %v, want %q", err, c.want)
				}
				said := fmt.Sprintf("%v %+v %v\n%s", s, s, err, log)
				for _, secret := range []string{wrong, database.Password, url.QueryEscape(wrong), url.QueryEscape(database.Password), url.PathEscape(database.Password)} {
					if strings.Contains(said, secret) {
						t.Errorf("it says the password %s:\n%s", secret, said)
					}
				}
				if err := b.Stop(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// quick is a storage whose start does not wait long.
func quick(s controlplane.Storage) controlplane.Storage {
	switch s := s.(type) {
	case postgres.DB:
		s.DialTimeout = time.Second
		return s
	case mysql.DB:
		s.DialTimeout = time.Second
		return s
	}
	return s
}

// unusedAddress is where nothing listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestDescriptions refuses what cannot be meant, and says nothing of a password.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		storage controlplane.Storage
		want    string
	}{
		"two passwords":      {postgres.DB{URL: "postgres://u:s3cret@127.0.0.1/d", Password: "s3cret"}, "use one of them"},
		"nobody's password":  {postgres.DB{URL: "postgres://127.0.0.1/d", Password: "s3cret"}, "no user"},
		"no database":        {postgres.DB{URL: "postgres://u:s3cret@127.0.0.1/"}, "names no database"},
		"no database, MySQL": {mysql.DB{URL: "mysql://u:s3cret@127.0.0.1/"}, "names no database"},
		"another scheme":     {postgres.DB{URL: "mysql://u:s3cret@127.0.0.1/d"}, "must begin with postgres://"},
		"half a certificate": {postgres.DB{URL: "postgres://u@127.0.0.1/d", CertFile: "cert"}, "needs its key"},
		"a file for all":     {mysql.DB{URL: "mysql://u@127.0.0.1/d", PasswordFile: secret}, "chmod 0600"},
		"a bare password":    {mysql.DB{URL: "mysql://u:12?s3cret@127.0.0.1/d"}, "percent-encoded"},
		"parameters":         {mysql.DB{URL: "mysql://u:s3cret@127.0.0.1/d?timeout=x"}, "parameters of the URL"},
		"no such CA":         {mysql.DB{URL: "mysql://u:s3cret@127.0.0.1/d", CAFile: "none"}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.storage.Open().Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestStartEndsInTime has a database that takes connections and says nothing.
func TestStartEndsInTime(t *testing.T) {
	before := goleak.IgnoreCurrent()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range engines() {
		scheme := strings.Replace(e.name, "mariadb", "mysql", 1)
		b := quick(e.storage(scheme + "://u:p@" + l.Addr().String() + "/d")).Open()
		if err := b.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer within 1s") {
			t.Errorf("got %v", err)
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// TestStartTogether: servers that start at once on a database that is not there make it together.
func TestStartTogether(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		const servers = 8
		revisions := make([]int64, servers)
		var all sync.WaitGroup
		for n := range servers {
			all.Go(func() {
				b := e.storage(server.URL("together")).Open()
				defer func() {
					if err := b.Stop(context.Background()); err != nil {
						t.Error(err)
					}
				}()
				if err := b.Start(t.Context()); err != nil {
					t.Error(err)
					return
				}
				c, err := b.Client()
				if err != nil {
					t.Error(err)
					return
				}
				r, err := c.Put(t.Context(), fmt.Sprintf("/%d", n), "")
				if err != nil {
					t.Error(err)
					return
				}
				revisions[n] = r.Header.Revision
			})
		}
		all.Wait()
		used := map[int64]bool{}
		for n, r := range revisions {
			if r < 2 || r > servers+1 || used[r] {
				t.Errorf("server %d of %d wrote revision %d", n, servers, r)
			}
			used[r] = true
		}
	})
}

// TestNoRights: a user who may not change tables uses those that are there.
func TestNoRights(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		address := server.URL("rights")
		first := started(t, e.storage(address))
		put(t.Context(), t, first, "/a", "")
		grants := `CREATE ROLE modest LOGIN PASSWORD 'modest'; GRANT SELECT, INSERT, UPDATE, DELETE ON sailplane_changes, sailplane_log, sailplane_sweep TO modest`
		if e.name == "mariadb" {
			grants = `CREATE USER modest@'127.0.0.1' IDENTIFIED BY 'modest'; GRANT SELECT, INSERT, UPDATE, DELETE ON rights.* TO modest@'127.0.0.1'`
		}
		database.Exec(t, address, grants)
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("modest", "modest")
		c := started(t, e.storage(u.String()))
		revision := put(t.Context(), t, c, "/b", "")
		if _, err := c.Compact(t.Context(), revision); err != nil {
			t.Errorf("compact: %v", err)
		}
		got, err := first.Get(t.Context(), "/", clientv3.WithPrefix())
		if err != nil || len(got.Kvs) != 2 {
			t.Errorf("the other server has %v, %v", got, err)
		}
	})
}

// TestNewPassword: a server goes on when its password has changed, in the database and in its file.
func TestNewPassword(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		server := e.start(t)
		address := server.URL("rotated")
		started(t, e.storage(address)) // makes the database
		set, end := `CREATE ROLE rotated LOGIN SUPERUSER PASSWORD '%s'`, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'`
		change := `ALTER ROLE rotated PASSWORD '%s'`
		if e.name == "mariadb" {
			set = `CREATE USER rotated@'127.0.0.1' IDENTIFIED BY '%s'; GRANT ALL ON rotated.* TO rotated@'127.0.0.1'`
			change, end = `ALTER USER rotated@'127.0.0.1' IDENTIFIED BY '%s'`, `KILL USER rotated`
		}
		file := filepath.Join(t.TempDir(), "password")
		write := func(password string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		database.Exec(t, address, fmt.Sprintf(set, "before"))
		write("before")
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User("rotated")
		s := controlplane.Storage(postgres.DB{URL: u.String(), PasswordFile: file, DialTimeout: startTimeout})
		if e.name == "mariadb" {
			s = mysql.DB{URL: u.String(), PasswordFile: file, DialTimeout: startTimeout}
		}
		c := started(t, s)
		put(t.Context(), t, c, "/a", "")
		write("after")
		database.Exec(t, address, fmt.Sprintf(change, "after"))
		database.Exec(t, address, end)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		put(ctx, t, c, "/b", "")
		if got, err := c.Get(ctx, "/", clientv3.WithPrefix()); err != nil || len(got.Kvs) != 2 {
			t.Errorf("a list has %v, %v", got, err)
		}
	})
}
