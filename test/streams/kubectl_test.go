package streams

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// said runs a command and returns what it says, on stdout and stderr.
func said(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(c.Args[1:], " "), err, out)
	}
	return string(out)
}

// TestLogs follows a log until it had enough, and the function learns that.
func TestLogs(t *testing.T) {
	t.Parallel()
	p := serve(t)
	if got := said(t, p.kubectl(t, "", "logs", "web")); got != "web/main starts\n" {
		t.Errorf("logs: %q", got)
	}
	c := p.kubectl(t, "", "logs", "-f", "web")
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	lines := bufio.NewScanner(out)
	for _, want := range []string{"web/main starts", "tick", "tick"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("the log says %q, want %q: %v", lines.Text(), want, lines.Err())
		}
	}
	must(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	select {
	case <-p.followed:
	case <-time.After(patience):
		t.Error("the function does not learn that nobody follows the log")
	}
}

// TestExec runs commands with their streams and exit codes.
func TestExec(t *testing.T) {
	t.Parallel()
	p := serve(t)
	onEveryTransport(t, p, func(t *testing.T, kubectl func(...string) *exec.Cmd) {
		t.Helper()
		c := kubectl("exec", "-i", "web", "--", "sh", "-c", "cat; echo to err >&2")
		var stderr bytes.Buffer
		c.Stdin, c.Stderr = strings.NewReader("from stdin"), &stderr
		out, err := c.Output()
		if err != nil || string(out) != "from stdin" || !strings.Contains(stderr.String(), "to err") {
			t.Errorf("exec: %q, %q: %v", out, &stderr, err)
		}
		err = kubectl("exec", "web", "--", "sh", "-c", "exit 42").Run()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 42 {
			t.Errorf("kubectl ends with %v, want the exit code 42", err)
		}
		c = kubectl("attach", "-i", "web")
		c.Stdin = strings.NewReader("hello")
		if out, err := c.Output(); err != nil || string(out) != "HELLO\n" {
			t.Errorf("attach: %q: %v", out, err)
		}
	})
	if got := said(t, p.kubectl(t, "", "get", "--raw", "/api/v1/namespaces/default/pods/web/proxy/a")); got != "hello /a" {
		t.Errorf("proxy: %q", got)
	}
}

// TestTerminal has a shell in a terminal, whose size follows that of the client's.
func TestTerminal(t *testing.T) {
	t.Parallel()
	p := serve(t)
	onEveryTransport(t, p, func(t *testing.T, kubectl func(...string) *exec.Cmd) {
		t.Helper()
		terminal, err := pty.StartWithSize(kubectl("exec", "-it", "web", "--", "sh"), &pty.Winsize{Rows: 24, Cols: 80})
		must(t, err)
		defer terminal.Close()
		shown := make(chan string)
		go func() {
			defer close(shown)
			b := make([]byte, 4<<10)
			for {
				n, err := terminal.Read(b)
				if err != nil {
					return
				}
				shown <- string(b[:n])
			}
		}()
		var screen strings.Builder
		// until types a command, again and again, until what is shown matches.
		until := func(command, pattern string) {
			t.Helper()
			end := time.After(patience)
			for again := time.NewTicker(500 * time.Millisecond); ; {
				select {
				case s, open := <-shown:
					if !open {
						t.Fatalf("kubectl ended: %s", &screen)
					}
					screen.WriteString(s)
					if regexp.MustCompile(pattern).MatchString(screen.String()) {
						return
					}
				case <-again.C:
					_, err := terminal.WriteString(command + "\r")
					must(t, err)
				case <-end:
					t.Fatalf("the terminal does not show %q: %s", pattern, &screen)
				}
			}
		}
		until("stty size", `24 80\r\n`)
		must(t, pty.Setsize(terminal, &pty.Winsize{Rows: 40, Cols: 132}))
		until("stty size", `40 132\r\n`)
		_, err = terminal.WriteString("exit\r")
		must(t, err)
		for range shown { // until kubectl has ended
		}
	})
}

// TestCopy copies 100 MiB to a pod and back.
func TestCopy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("kubectl cp runs tar in the pod, and this machine has none")
	}
	const size = 100 << 20
	p := serve(t)
	original := filepath.Join(t.TempDir(), "original")
	f, err := os.Create(original)
	must(t, err)
	_, err = io.CopyN(f, rand.Reader, size)
	must(t, err)
	must(t, f.Close())
	want := sum(t, original)
	onEveryTransport(t, p, func(t *testing.T, kubectl func(...string) *exec.Cmd) {
		t.Helper()
		name := "copy-" + filepath.Base(t.Name())
		said(t, kubectl("cp", original, "web:"+filepath.Join(p.dir, name)))
		if got := sum(t, filepath.Join(p.dir, name)); got != want {
			t.Errorf("what was copied to the pod is another file: SHA-256 %s, want %s", got, want)
		}
		back := filepath.Join(t.TempDir(), "back")
		said(t, kubectl("cp", "web:"+filepath.Join(p.dir, name), back))
		if got := sum(t, back); got != want {
			t.Errorf("what was copied from the pod is another file: SHA-256 %s, want %s", got, want)
		}
	})
}

// sum is the SHA-256 of a file.
func sum(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(t, err)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// TestPortForward reaches an HTTP server through kubectl.
func TestPortForward(t *testing.T) {
	t.Parallel()
	p := serve(t)
	onEveryTransport(t, p, func(t *testing.T, kubectl func(...string) *exec.Cmd) {
		t.Helper()
		c := kubectl("port-forward", "--address=127.0.0.1", "web", ":80")
		out, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		defer func() {
			_ = c.Process.Kill()
			_ = c.Wait() // it was killed
		}()
		line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:34567 -> 80
		must(t, err)
		address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
		for i := range 10 {
			resp, err := http.Get(fmt.Sprintf("http://%s/%d", address, i))
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			must(t, err)
			must(t, resp.Body.Close())
			if want := fmt.Sprintf("hello /%d", i); string(body) != want {
				t.Errorf("the server says %q, want %q", body, want)
			}
		}
	})
}
