//go:build unix

package moving

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/test/database"
	"github.com/sailplane-dev/sailplane/test/program"
)

// walk is the walk of docs/storage/moving.md: what a reader sets, and the scripts.
func walk(t *testing.T) (names []string, scripts []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "storage", "moving.md"))
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## A walk")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		scripts = append(scripts, m[1])
	}
	if len(scripts) != 5 {
		t.Fatalf("the walk has %d scripts, want what a reader sets, two copies, a backup and a restore", len(scripts))
	}
	for line := range strings.Lines(scripts[0]) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	return names, scripts[1:]
}

// machine is where the walk is run.
type machine struct {
	t      *testing.T
	dir    string
	set    map[string]string // what a reader sets
	proxy  *proxy            // in front of the server
	server *program.Process
}

// run runs a script. The test is systemd.
func (m *machine) run(script string) {
	m.t.Helper()
	var rest strings.Builder
	flush := func() {
		m.t.Helper()
		if rest.Len() > 0 {
			m.shell(rest.String())
			rest.Reset()
		}
	}
	for line := range strings.Lines(script) {
		switch strings.TrimSpace(line) {
		case "systemctl start sailplane":
			flush()
			m.start()
		case "systemctl stop sailplane":
			flush()
			m.proxy.to("")
			must(m.t, m.server.Interrupt())
		case "systemctl start etcd":
			flush()
			m.startCluster()
		default:
			rest.WriteString(line)
		}
	}
	flush()
}

func (m *machine) shell(script string) {
	m.t.Helper()
	cmd := exec.Command("sh", "-e", "-c", script)
	cmd.Dir, cmd.Env = m.dir, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	for name, value := range m.set {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	m.t.Logf("%s\n%s", script, out)
}

// start starts the server, and has the proxy lead to it.
func (m *machine) start() {
	m.t.Helper()
	m.server = program.Launch(m.t, exec.Command(sailplane(), "serve", "--config", m.set["config"]))
	must(m.t, m.server.AwaitReady())
	config, err := m.server.Config()
	must(m.t, err)
	m.proxy.to(strings.TrimPrefix(config.Host, "https://"))
}

// startCluster starts the members that the walk made.
func (m *machine) startCluster() {
	m.t.Helper()
	clients := strings.Split(m.set["clients"], ",")
	for n, member := range strings.Split(m.set["cluster"], ",") {
		name, peer, _ := strings.Cut(member, "=")
		cmd := exec.Command(filepath.Join(tools, "etcd"), "--name", name, "--data-dir", filepath.Join(m.dir, name), "--unsafe-no-fsync",
			"--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "500", "--listen-peer-urls", peer,
			"--listen-client-urls", clients[n], "--advertise-client-urls", clients[n])
		said := &bytes.Buffer{}
		cmd.Stderr = said
		must(m.t, cmd.Start())
		m.t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if m.t.Failed() {
				m.t.Logf("etcd %s said %s", name, said)
			}
		})
	}
}

// addresses are URLs at which nobody listens.
func addresses(t *testing.T, n int) (all []string) {
	t.Helper()
	var held []net.Listener // so that they differ
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		must(t, err)
		held, all = append(held, l), append(all, "http://"+l.Addr().String())
	}
	for _, l := range held {
		must(t, l.Close())
	}
	return all
}

const (
	// configuration is that of the server, which encrypts Secrets.
	configuration = `apiVersion: sailplane.dev/v1alpha1
kind: Server
listen: 127.0.0.1:0
dataDir: DIR/data
kubeconfig: DIR/admin.kubeconfig
storage:
  url: sqlite:DIR/state.db
  passwordFile: ""
encryption:
  configFile: DIR/encryption.yaml
`
	encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{secretbox: {keys: [{name: one, secret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}]}}]
`
)

// TestWalk runs the walk of the documents. An informer and a controller run through it, and have exactly what the
// server has after each step, though others write before it, and go back to a backup in the end.
func TestWalk(t *testing.T) {
	t.Parallel()
	postgres := database.Postgres(t)
	u, err := url.Parse(postgres.URL("walk"))
	must(t, err)
	u.User = url.User(u.User.Username())
	dir, urls := t.TempDir(), addresses(t, 6)
	m := &machine{t: t, dir: dir, proxy: newProxy(t), set: map[string]string{
		"config": filepath.Join(dir, "server.yaml"), "database": u.String(), "password": filepath.Join(dir, "password"),
		"cluster": fmt.Sprintf("m1=%s,m2=%s,m3=%s", urls[0], urls[1], urls[2]), "clients": strings.Join(urls[3:], ","),
	}}
	must(t, os.WriteFile(m.set["password"], []byte(database.Password+"\n"), 0o600))
	must(t, os.WriteFile(m.set["config"], []byte(strings.ReplaceAll(configuration, "DIR", dir)), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "encryption.yaml"), []byte(encryption), 0o600))
	names, scripts := walk(t)
	if want := slices.Sorted(maps.Keys(m.set)); !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Fatalf("the reader sets %v, want %v", names, want)
	}
	m.start()
	clients := connect(t, m)
	for n, script := range scripts {
		clients.change(t, n)
		clients.agree(t, fmt.Sprintf("before step %d", n+1))
		m.run(script)
		clients.agree(t, fmt.Sprintf("after step %d", n+1))
	}
	if names := clients.names(t); slices.Contains(names, "new-3") || !slices.Contains(names, "new-2") {
		t.Errorf("after the restore there are %v, want those of the backup: with new-2, without new-3", names)
	}
	clients.change(t, len(scripts))
	clients.agree(t, "in the end")
}
