package crash

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/test/program"
)

// limit is how long anything may take before it counts as hanging.
const limit = 2 * time.Minute

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "crash tests kill processes as Unix does")
		return
	}
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		binary, err = program.Sailplane(ctx, dir)
		return err
	}}.Run())
}

// storages are the values of --storage that keep something, for a data directory.
func storages() map[string]func(dir string) string {
	return map[string]func(dir string) string{
		"etcd":   func(dir string) string { return "etcd:" + filepath.Join(dir, "etcd") },
		"sqlite": func(dir string) string { return "sqlite:" + filepath.Join(dir, "state.db") },
	}
}

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	ready  chan struct{}
	exited chan struct{}

	mu     sync.Mutex
	out    bytes.Buffer
	stderr bytes.Buffer
	config string
}

// launch starts the command, which may be the server below a shell.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ready: make(chan struct{}), exited: make(chan struct{})}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = writerFunc(func(b []byte) (int, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.stderr.Write(b)
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		p.read(stdout)
		_ = cmd.Wait() // the state tells how it ended
	}()
	t.Cleanup(p.kill)
	return p
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// read looks for the ready line.
func (p *process) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		line := lines.Text()
		p.mu.Lock()
		fmt.Fprintln(&p.out, line)
		_, config, found := strings.Cut(line, ", kubeconfig ")
		if found && strings.Contains(line, "ready at https://") {
			p.config = config
			close(p.ready)
		}
		p.mu.Unlock()
	}
}

// serveArgs are the arguments of a server with this storage.
func serveArgs(dir, storage string) []string {
	return []string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--storage", storage}
}

// serve starts a server and returns when it is ready.
func serve(t *testing.T, dir, storage string) *process {
	t.Helper()
	p := launch(t, exec.Command(binary, serveArgs(dir, storage)...))
	if err := p.awaitReady(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) awaitReady() error {
	select {
	case <-p.ready:
		return nil
	case <-p.exited:
		return fmt.Errorf("the server ended before it was ready: %v: %s", p.cmd.ProcessState, p.text())
	case <-time.After(limit):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // Go prints its goroutines
		<-p.exited
		return fmt.Errorf("not ready after %v: %s", limit, p.text())
	}
}

// kill ends the process as a power cut of the process: it cannot react.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// interrupt asks the process to stop and waits for that.
func (p *process) interrupt() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(limit):
		return fmt.Errorf("not stopped after %v: %s", limit, p.text())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%v: %s", p.cmd.ProcessState, p.text())
	}
	return nil
}

// text is what the process wrote to stderr.
func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// configMaps is a client for the namespace default.
func (p *process) configMaps() (corev1.ConfigMapInterface, error) {
	c, err := p.client()
	if err != nil {
		return nil, err
	}
	return c.CoreV1().ConfigMaps("default"), nil
}

// client is a client of the server.
func (p *process) client() (*kubernetes.Clientset, error) {
	p.mu.Lock()
	path := p.config
	p.mu.Unlock()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.Timeout = limit
	return kubernetes.NewForConfig(config)
}

// fails runs a command that must end by itself with status 1, and returns its stderr.
func fails(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	p := launch(t, cmd)
	select {
	case <-p.exited:
	case <-p.ready:
		t.Fatal("the server is ready, want an error")
	case <-time.After(limit):
		t.Fatalf("not ended after %v: %s", limit, p.text())
	}
	text := p.text()
	if code := p.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("%v, want exit status 1", p.cmd.ProcessState)
	}
	for _, trace := range []string{"goroutine ", "panic:", "fatal error:", "[running]"} {
		if strings.Contains(text, trace) {
			t.Errorf("stderr has a stack trace (%q)", trace)
			break
		}
	}
	return text
}

func background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

func mustWrite(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}
