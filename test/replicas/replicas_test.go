//go:build unix

// Package replicas runs several servers on one storage, as processes, and holds them to behave as one.
package replicas

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/database"
	"github.com/sailplane-dev/sailplane/test/program"
)

// binary and kubectl are the programs under test, built once.
var binary, kubectl string

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		if binary, err = program.Sailplane(ctx, dir); err != nil {
			return err
		}
		kubectl, err = program.Kubectl(ctx, dir)
		return err
	}}.Run())
}

// onEach runs a test on each storage that servers may share.
func onEach(t *testing.T, test func(*testing.T, *fleet)) {
	t.Helper()
	t.Parallel()
	for name, start := range map[string]func(testing.TB) string{
		"postgres": func(t testing.TB) string { return database.Postgres(t).URL("replicas") },
		"mariadb":  func(t testing.TB) string { return database.MariaDB(t).URL("replicas") },
		"etcd":     startCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFleet(t, start(t)))
		})
	}
}

// fleet are servers on one storage.
type fleet struct {
	dir, url, password string
	arguments          []string
}

func newFleet(t *testing.T, address string) *fleet {
	t.Helper()
	f := &fleet{dir: t.TempDir(), url: address}
	if u, err := url.Parse(address); err == nil && u.User != nil { // the process list shows arguments
		f.password, _ = u.User.Password()
		u.User = url.User(u.User.Username())
		f.url = u.String()
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	key := filepath.Join(f.dir, "share.key")
	must(t, os.WriteFile(key, []byte(hex.EncodeToString(random)), 0o600))
	f.arguments = []string{"--storage", f.url, "--storage-share-key-file", key}
	return f
}

// server is one of a fleet.
type server struct {
	*program.Process
	dir     string
	config  *rest.Config
	client  *kubernetes.Clientset
	dynamic dynamic.Interface
}

// launch starts a server, which is there until the test ends.
func (f *fleet) launch(t *testing.T, name string, arguments ...string) *server {
	t.Helper()
	return f.launchProgram(t, binary, name, arguments...)
}

func (f *fleet) launchProgram(t *testing.T, path, name string, arguments ...string) *server {
	t.Helper()
	s := &server{dir: filepath.Join(f.dir, name)}
	all := append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", s.dir}, f.arguments...)
	cmd := exec.Command(path, append(all, arguments...)...)
	cmd.Env = append(os.Environ(), "SAILPLANE_STORAGE_PASSWORD="+f.password)
	if f.password == "" {
		cmd.Env = os.Environ()
	}
	s.Process = program.Launch(t, cmd)
	return s
}

// ready waits until servers are, and makes their clients.
func ready(t *testing.T, all ...*server) {
	t.Helper()
	for _, s := range all {
		must(t, s.AwaitReady())
		config, err := s.Config()
		must(t, err)
		s.use(t, config)
	}
}

// use makes the clients of a server.
func (s *server) use(t *testing.T, config *rest.Config) {
	t.Helper()
	var err error
	s.config = config
	s.client, err = kubernetes.NewForConfig(config)
	must(t, err)
	s.dynamic, err = dynamic.NewForConfig(config)
	must(t, err)
}

// kubectl runs kubectl with nothing cached.
func (s *server) kubectl(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig", s.Kubeconfig(), "--cache-dir", t.TempDir()}, arguments...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}

// within returns when something holds, and fails the test if it takes too long.
func within(t *testing.T, limit time.Duration, what string, holds func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s does not hold within %v", what, limit)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
