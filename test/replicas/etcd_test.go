//go:build unix

package replicas

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/test/program"
)

// members is how many an etcd cluster has.
const members = 3

// startCluster runs an etcd of three members until the test ends, and returns where it is. Its ports were
// free a moment ago: a member that finds its own taken ends, and the test says so.
func startCluster(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "etcd")
	must(t, program.Build(t.Context(), "test/storage/etcd37", "go.etcd.io/etcd/server/v3", path))
	addresses := freeAddresses(t, 2*members)
	var cluster, endpoints []string
	for n := range members {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", n, addresses[n]))
		endpoints = append(endpoints, "http://"+addresses[members+n])
	}
	for n := range members {
		_, peer, _ := strings.Cut(cluster[n], "=")
		cmd := exec.Command(path, "--name", fmt.Sprintf("m%d", n), "--data-dir", filepath.Join(dir, fmt.Sprintf("m%d", n)),
			"--unsafe-no-fsync", "--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error",
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(cluster, ","),
			"--listen-client-urls", endpoints[n], "--advertise-client-urls", endpoints[n])
		said := &bytes.Buffer{}
		cmd.Stderr = said
		must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("etcd %d said %s", n, said)
			}
		})
	}
	return "etcd+" + strings.Join(endpoints, ",")
}

// freeAddresses are addresses where nobody listens.
func freeAddresses(t testing.TB, n int) (all []string) {
	t.Helper()
	var held []net.Listener // so that they differ
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		must(t, err)
		held, all = append(held, l), append(all, l.Addr().String())
	}
	for _, l := range held {
		must(t, l.Close())
	}
	return all
}
