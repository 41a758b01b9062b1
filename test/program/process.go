package program

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Patience is how long anything may take before it counts as hanging.
const Patience = 2 * time.Minute

// Process is a server of Sailplane that runs.
type Process struct {
	Cmd *exec.Cmd
	// Ready is closed when the server has said that it is, and Exited when the process has ended.
	Ready, Exited chan struct{}

	mu         sync.Mutex
	stderr     bytes.Buffer
	kubeconfig string
}

// Launch starts a command until the test ends, which may be the server below a shell.
func Launch(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Ready: make(chan struct{}), Exited: make(chan struct{})}
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
		defer close(p.Exited)
		p.read(stdout)
		_ = cmd.Wait() // the state tells how it ended
	}()
	t.Cleanup(p.Kill)
	return p
}

type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// read looks for the ready line.
func (p *Process) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		line := lines.Text()
		_, path, found := strings.Cut(line, ", kubeconfig ")
		if found && strings.Contains(line, "ready at https://") {
			p.mu.Lock()
			p.kubeconfig = path
			p.mu.Unlock()
			close(p.Ready)
		}
	}
}

// AwaitReady returns when the server is ready, or will not be.
func (p *Process) AwaitReady() error {
	select {
	case <-p.Ready:
		return nil
	case <-p.Exited:
		return fmt.Errorf("the server ended before it was ready: %v: %s", p.Cmd.ProcessState, p.Stderr())
	case <-time.After(Patience):
		_ = p.Cmd.Process.Signal(syscall.SIGQUIT) // Go prints its goroutines
		<-p.Exited
		return fmt.Errorf("not ready after %v: %s", Patience, p.Stderr())
	}
}

// Kill ends the process as a power cut of the process: it cannot react.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.Exited
}

// Interrupt asks the process to stop, and waits for that.
func (p *Process) Interrupt() error {
	if err := p.Cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-p.Exited:
	case <-time.After(Patience):
		return fmt.Errorf("not stopped after %v: %s", Patience, p.Stderr())
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%v: %s", p.Cmd.ProcessState, p.Stderr())
	}
	return nil
}

// Stderr is what the process wrote there.
func (p *Process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Kubeconfig is the path of the administrator's, once the server is ready.
func (p *Process) Kubeconfig() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kubeconfig
}

// Config is the administrator's configuration of a client that nothing slows down.
func (p *Process) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.Timeout = Patience
	return config, nil
}
