package kept

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Limit is how long anything may take before it counts as hanging.
const Limit = 2 * time.Minute

// EncryptionFile is the file of a data directory that says what is encrypted,
// in those that are.
const EncryptionFile = "encryption.yaml"

// Server is a running server on a data directory.
type Server struct {
	cmd    *exec.Cmd
	ready  chan struct{}
	exited chan struct{}
	dir    string

	mu     sync.Mutex
	stderr bytes.Buffer
}

// Storage is the value of --storage for a data directory. The kind is "sqlite" or "etcd".
func Storage(kind, dir string) string {
	if kind == "sqlite" {
		return "sqlite:" + filepath.Join(dir, "state.db")
	}
	return kind + ":" + filepath.Join(dir, kind)
}

// Serve starts the binary on a data directory and returns when it is ready.
// The audit log is no state: it is not written.
func Serve(ctx context.Context, binary, kind, dir string) (*Server, error) {
	args := []string{
		"serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--storage", Storage(kind, dir), "--audit-log", "none",
		"--service-account-max-token-expiration", "0s",
	} // the kept token is to last
	encryption := filepath.Join(dir, EncryptionFile)
	if _, err := os.Stat(encryption); err == nil {
		args = append(args, "--encryption-config", encryption)
	}
	return Start(ctx, binary, dir, args...)
}

// Start starts the binary with arguments that name the data directory, and returns when it is ready.
func Start(ctx context.Context, binary, dir string, args ...string) (*Server, error) {
	s := &Server{cmd: exec.Command(binary, args...), ready: make(chan struct{}), exited: make(chan struct{}), dir: dir}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = (*errorLog)(s)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.exited)
		s.read(stdout)
		_ = s.cmd.Wait() // the state tells how it ended
	}()
	if err := s.awaitReady(ctx); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// errorLog is the server as what its process writes errors to.
type errorLog Server

// Write keeps what the process writes to stderr.
func (l *errorLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stderr.Write(b)
}

// read looks for the ready line.
func (s *Server) read(stdout io.Reader) {
	found := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if !found && strings.Contains(lines.Text(), "ready at https://") {
			found = true
			close(s.ready)
		}
	}
}

func (s *Server) awaitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.exited:
		return fmt.Errorf("the server ended before it was ready: %v: %s", s.cmd.ProcessState, s.Stderr())
	case <-ctx.Done():
		return fmt.Errorf("the server is not ready: %w: %s", ctx.Err(), s.Stderr())
	case <-time.After(Limit):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // Go prints its goroutines
		<-s.exited
		return fmt.Errorf("the server is not ready after %v: %s", Limit, s.Stderr())
	}
}

// Kill ends the process as a power cut does: it cannot react.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.exited
}

// Stop asks the process to stop and waits for that.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-s.exited:
	case <-time.After(Limit):
		return fmt.Errorf("the server has not stopped after %v: %s", Limit, s.Stderr())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the server stopped with %v: %s", s.cmd.ProcessState, s.Stderr())
	}
	return nil
}

// Stderr is what the process wrote to stderr.
func (s *Server) Stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.String()
}

// Admin is the configuration of a client with the kubeconfig that the server wrote.
func (s *Server) Admin() (*rest.Config, error) {
	return LoadKubeconfig(Kubeconfig(s.dir))
}

// Kubeconfig is the administrator's kubeconfig of a data directory.
func Kubeconfig(dir string) string { return filepath.Join(dir, "admin.kubeconfig") }

// LoadKubeconfig is the configuration of a client that nothing slows down.
func LoadKubeconfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config.QPS = -1
	config.Timeout = Limit
	return config, nil
}
