package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sailplane-dev/sailplane/test/program"
)

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

// serveArgs are the arguments of a server with this storage.
func serveArgs(dir, storage string) []string {
	return []string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--storage", storage}
}

// serve starts a server and returns when it is ready.
func serve(t *testing.T, dir, storage string) *program.Process {
	t.Helper()
	p := program.Launch(t, exec.Command(binary, serveArgs(dir, storage)...))
	if err := p.AwaitReady(); err != nil {
		t.Fatal(err)
	}
	return p
}

// configMaps is a client for the namespace default.
func configMaps(p *program.Process) (corev1.ConfigMapInterface, error) {
	c, err := client(p)
	if err != nil {
		return nil, err
	}
	return c.CoreV1().ConfigMaps("default"), nil
}

// client is a client of the server.
func client(p *program.Process) (*kubernetes.Clientset, error) {
	config, err := p.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// fails runs a command that must end by itself with status 1, and returns its stderr.
func fails(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	p := program.Launch(t, cmd)
	select {
	case <-p.Exited:
	case <-p.Ready:
		t.Fatal("the server is ready, want an error")
	case <-time.After(program.Patience):
		t.Fatalf("not ended after %v: %s", program.Patience, p.Stderr())
	}
	text := p.Stderr()
	if code := p.Cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("%v, want exit status 1", p.Cmd.ProcessState)
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
	return context.WithTimeout(context.Background(), program.Patience)
}

func mustWrite(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}
