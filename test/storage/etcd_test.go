package storage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
	"github.com/sailplane-dev/sailplane/test/program"
)

// TestEtcdVersions runs the contract of storages on etcd servers of every version
// that is supported, each a process of its own on loopback. 3.7 is left out: it is the
// version of the embedded one, which TestCluster of pkg/storage/etcd runs the contract on.
func TestEtcdVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("two etcds are compiled once, which takes minutes; run without -short")
	}
	for name, version := range map[string]string{"etcd35": "3.5.", "etcd36": "3.6."} {
		t.Run(name, func(t *testing.T) {
			server := build(t, name)
			out, err := exec.CommandContext(t.Context(), server, "--version").Output()
			if err != nil || !strings.Contains(string(out), "etcd Version: "+version) {
				t.Fatalf("%s --version: %v, %s, want %s", server, err, out, version)
			}
			storagetest.Run(t, func(t testing.TB) controlplane.Storage {
				return etcd.Cluster{Endpoints: []string{serve(t, server, t.TempDir())}, DialTimeout: patience}
			})
		})
	}
}

// build builds the etcd of a module below this directory, and returns the program.
func build(t *testing.T, module string) string {
	t.Helper()
	server := filepath.Join(t.TempDir(), "etcd")
	if err := program.Build(t.Context(), "test/storage/"+module, "go.etcd.io/etcd/server/v3", server); err != nil {
		t.Fatal(err)
	}
	return server
}

// serve runs an etcd until the test ends and returns its client URL.
func serve(t testing.TB, program, dir string) string {
	t.Helper()
	return "http://" + serveAt(t, program, dir, "http")
}

// serveAt runs an etcd with further flags until the test ends, and returns the address
// of its clients. The kernel chooses the ports, so it is in what etcd logs only.
func serveAt(t testing.TB, program, dir, scheme string, flags ...string) string {
	t.Helper()
	const local = "http://127.0.0.1:0"
	clients := scheme + "://127.0.0.1:0"
	cmd := exec.Command(program, append(flags, "--data-dir", dir, "--unsafe-no-fsync", "--logger", "zap",
		"--heartbeat-interval", "10", "--election-timeout", "100",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", local, "--initial-advertise-peer-urls", local, "--initial-cluster", "default="+local)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address, end := make(chan string, 1), make(chan error, 1)
	go func() { end <- read(log, address) }()
	t.Cleanup(func() { shut(t, cmd, end) })
	select {
	case a := <-address:
		return a
	case err := <-end:
		end <- nil
		t.Fatalf("%s ended before it served: %v", program, err)
	case <-time.After(patience):
		t.Fatalf("%s does not serve", program)
	}
	return ""
}

// read reads what an etcd logs until it ends, and sends the address it serves at.
// Its error is what etcd said last.
func read(log io.Reader, address chan<- string) error {
	var last string
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		last = lines.Text()
		var entry struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && strings.HasPrefix(entry.Msg, "serving client traffic") {
			select {
			case address <- entry.Address:
			default:
			}
		}
	}
	return errors.Join(lines.Err(), errors.New(last))
}

// shut ends an etcd, by force where it does not end when asked.
func shut(t testing.TB, cmd *exec.Cmd, end <-chan error) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	forced := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	if err := <-end; err != nil { // with its last line
		t.Log(err)
	}
	_ = cmd.Wait() // a signal is why it ended
	if !forced() {
		t.Errorf("etcd %d does not end when asked", cmd.Process.Pid)
	}
}
