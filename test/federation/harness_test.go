package federation

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sailplane-dev/sailplane/test/script"
)

// patience is how long anything may take before it counts as hanging.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "these tests stop processes as Unix does")
		return
	}
	testscript.Main(&suite{m}, map[string]func(){"kubectl": script.Kubectl})
}

// suite builds sailplane before the tests.
type suite struct{ *testing.M }

// Run implements testscript.TestingM.
func (s *suite) Run() int {
	dir, err := os.MkdirTemp("", "sailplane-federation-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := script.Build(context.Background(), filepath.Join("..", ".."), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return s.M.Run()
}

// build builds the program of a module in a folder below, or beside.
func build(t *testing.T, folder, program string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(program))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, program)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", program, err, out)
	}
	return binary
}

// process is a program that runs until the test ends.
type process struct {
	*exec.Cmd
	mu     sync.Mutex
	out    bytes.Buffer
	exited chan struct{}
}

// Write implements io.Writer, for what the program writes.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return launch(t, exec.Command(name, args...))
}

func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, exited: make(chan struct{})}
	p.Stdout, p.Stderr = p, p
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait() // it is killed
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			out := p.text()
			t.Logf("%s wrote:\n%s", cmd, out[max(0, len(out)-4000):])
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.Process.Signal(syscall.SIGCONT) // it may be stopped
	_ = p.Process.Kill()                  // it may have ended
	<-p.exited
}

// front is a server with others behind it.
type front struct {
	dir, kubeconfig string
}

func serve(t *testing.T, args ...string) *front {
	t.Helper()
	dir := t.TempDir()
	p := start(t, "sailplane", append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--storage", "memory"}, args...)...)
	f := &front{dir: dir, kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	until(t, "the server is ready", func() error {
		select {
		case <-p.exited:
			t.Fatal("the server ended")
		default:
		}
		if !strings.Contains(p.text(), "ready at https://") {
			return errors.New("it is not")
		}
		return nil
	})
	return f
}

// try runs kubectl as the administrator.
func (f *front) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("kubectl", append([]string{"--kubeconfig", f.kubeconfig, "--cache-dir", filepath.Join(f.dir, "cache")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// kubectl runs it, and looks for words in what it says.
func (f *front) kubectl(t *testing.T, stdin, args string, words ...string) string {
	t.Helper()
	out, err := f.try(stdin, strings.Fields(args)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		if !regexp.MustCompile(w).MatchString(out) {
			t.Errorf("kubectl %s: %q is missing in:\n%s", args, w, out)
		}
	}
	return out
}

// until waits for something to hold.
func until(t *testing.T, what string, holds func() error) {
	t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// port is one that was free a moment ago, for programs that do not tell theirs.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// certificate writes a certificate for 127.0.0.1 that signed itself, and its key.
func certificate(t *testing.T) (certFile, keyFile string, content []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "behind"}, NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	content = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, b := range map[string][]byte{certFile: content, keyFile: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, content
}

// apiService is the APIService of a server at a port.
func apiService(group, version, port string, ca []byte) string {
	return fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: %s.%s
  annotations: {sailplane.dev/url: "https://127.0.0.1:%s"}
spec:
  group: %[2]s
  version: %[1]s
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {namespace: behind, name: api}
  caBundle: %[4]s
---`, version, group, port, base64.StdEncoding.EncodeToString(ca))
}

// account makes a service account with roles, and a kubeconfig of its own.
func (f *front) account(t *testing.T, name string, clusterRoles ...string) string {
	t.Helper()
	f.kubectl(t, "", "create serviceaccount -n kube-system "+name)
	for i, role := range clusterRoles {
		f.kubectl(t, "", fmt.Sprintf("create clusterrolebinding %s-%d --clusterrole=%s --serviceaccount=kube-system:%[1]s", name, i, role))
	}
	f.kubectl(t, "", fmt.Sprintf("create rolebinding -n kube-system %s --role=extension-apiserver-authentication-reader --serviceaccount=kube-system:%[1]s", name))
	token := strings.TrimSpace(f.kubectl(t, "", "create token -n kube-system "+name))
	admin, err := os.ReadFile(f.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := os.WriteFile(file, admin, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"set-credentials " + name + " --token=" + token, "set-context --current --user=" + name} {
		if out, err := exec.Command("kubectl", append([]string{"--kubeconfig", file, "config"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return file
}
