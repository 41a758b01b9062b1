package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/test/program"
)

// patience is how long is waited for what takes moments, on a machine busy with all tests at once.
const patience = 2 * time.Minute

// sailplane is where TestMain has put the binary.
var sailplane string

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		sailplane, err = program.Sailplane(ctx, dir)
		return err
	}}.Run())
}

// repository is the root of the repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// needs skips the test where something is missing, but not in CI, which installs it.
func needs(t *testing.T, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case os.Getenv("SAILPLANE_CI") != "":
		t.Fatalf("not installed: %v", missing)
	default:
		t.Skipf("not installed: %v", missing)
	}
}

// needsProgram is needs for a program.
func needsProgram(t *testing.T, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	needs(t, err)
}

// output runs a program and returns what it prints.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// server is a sailplane that runs.
type server struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  lines
	done chan struct{}
	err  error // of the process, once done is closed
}

// lines is written by the process and read by the test.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var readyLine = regexp.MustCompile(`(?m)^sailplane: ready at (https://\S+) `)

// start runs a command that serves, until it is ready.
func start(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		s.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // when the test did not get to stop
		<-s.done
	})
	for begun := time.Now(); !readyLine.MatchString(s.out.String()); time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.done:
			t.Fatalf("the server ended: %v\n%s", s.err, &s.out)
		default:
		}
		if time.Since(begun) > patience {
			t.Fatalf("the server is not ready after %v\n%s", patience, &s.out)
		}
	}
	return s
}

// stop asks a process to end, as service managers do, and wants the server to end well.
func (s *server) stop(pid int) {
	s.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.done:
		if s.err != nil {
			s.t.Errorf("the server ended badly: %v\n%s", s.err, &s.out)
		}
	case <-time.After(patience):
		s.t.Errorf("the server still runs %v after SIGTERM\n%s", patience, &s.out)
	}
}

// request sends a request with the rights of a kubeconfig and wants it to succeed.
func request(t *testing.T, kubeconfig, method, path, body string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s: %s, %v", method, path, answer.Status, text, err)
	}
}

// ending is the exit status of a process, or the signal that ended it.
func ending(err error) string {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Sprint(err)
	}
	return exit.String()
}
