package chart

import (
	"bytes"
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

	"github.com/sailplane-dev/sailplane/test/crds"
)

// server is a sailplane that runs.
type server struct {
	cmd             *exec.Cmd
	out             lines
	done            chan struct{}
	err             error // of the process, once done is closed
	url, kubeconfig string
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

var readyLine = regexp.MustCompile(`(?m)^sailplane: ready at (https://\S+) in \d+ ms, kubeconfig (\S+)$`)

// launch runs a command that serves. It is stopped with the test.
func launch(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		s.err = cmd.Wait()
	}()
	t.Cleanup(func() { s.stop(t) })
	return s
}

// start runs a sailplane, and returns when it is ready. It is stopped with the test.
func start(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	s := launch(t, cmd)
	eventually(t, "the server is ready", func() bool {
		select {
		case <-s.done:
			t.Fatalf("the server ended: %v\n%s", s.err, &s.out)
		default:
		}
		m := readyLine.FindStringSubmatch(s.out.String())
		if m != nil {
			s.url, s.kubeconfig = m[1], m[2]
		}
		return m != nil
	})
	return s
}

// stop asks the server to end, as the kubelet does, and wants it to end well.
func (s *server) stop(t *testing.T) {
	t.Helper()
	select {
	case <-s.done: // before it was asked: start has said so, or the test has stopped it
		return
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case <-s.done:
		if s.err != nil {
			t.Errorf("the server ended badly: %v\n%s", s.err, &s.out)
		}
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.done
		t.Errorf("the server still ran %v after SIGTERM\n%s", patience, &s.out)
	}
}

// config is that of a client with the rights of the administrator.
func (s *server) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// cluster runs a sailplane that stands for the cluster which the chart is installed
// in, with the definitions of cert-manager and of the Prometheus operator.
func cluster(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join("testdata", "crds", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range crds.Sets() {
		if set.Name == "cert-manager" {
			more, err := set.Files(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, more...)
		}
	}
	if len(files) < 2 {
		t.Fatalf("the definitions are not all there: %v", files)
	}
	definitions := t.TempDir()
	for _, file := range files {
		write(t, filepath.Join(definitions, filepath.Base(file)), read(t, file))
	}
	return start(t, exec.Command(sailplane, "serve", "--listen=127.0.0.1:0", "--data-dir="+dir, "--storage=memory", "--crds="+definitions))
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("not after %v: %s", patience, strings.TrimSpace(what))
		}
	}
}
