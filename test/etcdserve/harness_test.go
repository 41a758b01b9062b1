//go:build unix

// Package etcdserve runs kube-apiservers, as Kubernetes releases them, on storages that Sailplane serves
// as an etcd, and holds them to behave as on an etcd, whichever process ends.
package etcdserve

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sailplane-dev/sailplane/test/database"
	"github.com/sailplane-dev/sailplane/test/federation/behind"
	"github.com/sailplane-dev/sailplane/test/program"
)

// patience is how long anything may take before it counts as hanging.
const patience = 2 * time.Minute

// sailplane and apiserver are the programs under test, built once, and kubectl and the others what is used with them.
var (
	sailplane, apiserver, kubectl string
	programs                      behind.Programs
)

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		if sailplane, err = program.Sailplane(ctx, dir); err != nil {
			return err
		}
		if apiserver, err = program.KubeAPIServer(ctx, dir); err != nil {
			return err
		}
		if kubectl, err = program.Kubectl(ctx, dir); err != nil {
			return err
		}
		programs, err = behind.BuildPrograms(ctx, dir)
		return err
	}}.Run())
}

// storage is one that is served. Its password is not in the URL, because the process list shows arguments, but for
// the full one.
type storage struct{ url, full, password string }

func sqlite(t *testing.T) storage {
	t.Helper()
	return storage{url: "sqlite:" + filepath.Join(t.TempDir(), "kube.db")}
}

// postgres starts a PostgreSQL, and returns a database on it.
func postgres(t *testing.T) storage {
	t.Helper()
	u, err := url.Parse(database.Postgres(t).URL("kube"))
	must(t, err)
	full := u.String()
	u.User = url.User(u.User.Username())
	return storage{url: u.String(), full: full, password: database.Password}
}

// endpoint is a storage that is served as an etcd by a process of its own.
type endpoint struct {
	storage
	dir, listen, url string
	process          *behind.Process
}

// serve serves a storage until the test ends.
func serve(t *testing.T, s storage, listen string) *endpoint {
	t.Helper()
	e := &endpoint{storage: s, dir: t.TempDir(), listen: listen}
	e.start(t)
	ends(t, func() *behind.Process { return e.process })
	return e
}

// start starts the process, with all flags that this test has for it, and waits until it serves.
func (e *endpoint) start(t *testing.T) {
	t.Helper()
	command := exec.Command(sailplane, "storage", "serve", "--storage", e.storage.url, "--listen", e.listen, "--cert-dir", e.dir)
	command.Env = append(os.Environ(), "SAILPLANE_STORAGE_PASSWORD="+e.password)
	var err error
	e.process, err = behind.Start(filepath.Join(e.dir, "log"), command)
	must(t, err)
	address := regexp.MustCompile(`is served at (https://[0-9.:]+)\n`)
	until(t, e.process.String()+" serves", func(context.Context) error {
		if found := address.FindStringSubmatch(e.process.Text()); found != nil {
			e.url = found[1]
			return nil
		}
		return alive(e.process)
	})
}

// flags have a kube-apiserver use the endpoint.
func (e *endpoint) flags() []string {
	return []string{
		"--etcd-servers=" + e.url, "--etcd-cafile=" + filepath.Join(e.dir, "ca.crt"),
		"--etcd-certfile=" + filepath.Join(e.dir, "admin.crt"), "--etcd-keyfile=" + filepath.Join(e.dir, "admin.key"),
	}
}

// stop asks the process to end, which it does without an error, however many watches there are.
func (e *endpoint) stop(t *testing.T) {
	t.Helper()
	if err := e.process.Stop(); err != nil {
		t.Error(err)
	}
}

// kill ends the process so that it cannot react.
func (e *endpoint) kill(*testing.T) { e.process.Kill() }

// ends has a process end with the test, and say what it did where the test failed.
func ends(t *testing.T, process func() *behind.Process) {
	t.Helper()
	t.Cleanup(func() {
		p := process()
		p.Kill()
		if t.Failed() {
			out := p.Text()
			t.Logf("%s wrote:\n%s", p, out[max(0, len(out)-4000):])
		}
	})
}

// alive is the error of a process that is not ready: it goes on, or has ended.
func alive(p *behind.Process) error {
	select {
	case <-p.Exited():
		return gone{p}
	default:
		return errors.New("it is not ready")
	}
}

// gone is the error of a process that has ended by itself.
type gone struct{ process *behind.Process }

// Error implements error.
func (g gone) Error() string { return fmt.Sprintf("%s ended: %s", g.process, g.process.Text()) }

// address is one on this machine where nobody listened a moment ago, also for a process that is started
// there later: the kernel gives its port to nobody else.
func address(t *testing.T) string {
	t.Helper()
	port, err := behind.Port()
	must(t, err)
	return "127.0.0.1:" + port
}

// until waits for something to hold, and returns at once where it will not.
func until(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = holds(ctx)
		if errors.As(last, &gone{}) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
