package script

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long a command waits for what takes milliseconds, on a machine busy with all scripts at once.
const patience = 2 * time.Minute

// Commands are the commands of this package, by name.
func Commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"serve":      serve,
		"shutdown":   shutdown,
		"crash":      crash,
		"anonymous":  anonymous,
		"eventually": eventually,
		"each":       each,
		"keep":       keep,
		"fewer":      fewer,
	}
}

// Setup prepares a script for the commands. The root is the repository's; a storage may be
// empty, for the default.
func Setup(e *testscript.Env, root, storage string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	e.Setenv("STORAGE", storage)
	e.Setenv("CONFIG", filepath.Join(root, "config", "samples"))
	e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "data", "admin.kubeconfig"))
	e.Setenv("HOME", e.WorkDir) // where kubectl keeps what it discovered
	s := &server{}
	e.Values[serverKey{}] = s
	e.Defer(func() {
		if err := s.end(); err != nil {
			e.T().Fatal(err)
		}
	})
	return nil
}

type serverKey struct{}

// server is the server of one script.
type server struct {
	cmd *exec.Cmd
	log buffer
	// stdout is closed when the process has closed its own.
	stdout chan struct{}
}

// buffer is written by the process and read by the script.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func of(ts *testscript.TestScript) *server { return ts.Value(serverKey{}).(*server) }

var readyLine = regexp.MustCompile(`^sailplane: ready at (https://127\.0\.0\.1:[0-9]+) in [0-9]+ ms, kubeconfig (.+)$`)

func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("serve: use \"! exec sailplane serve\" for a server that does not start")
	}
	s := of(ts)
	if s.cmd != nil {
		ts.Fatalf("serve: the server runs already")
	}
	path := ts.Getenv("PATH")
	program, first := "sailplane", []string{"serve"}
	if script := ts.Getenv("PIECES"); script != "" {
		program, first = "pieces", []string{script, "serve"}
	}
	binary, err := lookPath(program, path)
	ts.Check(err)
	s.log = buffer{}
	flags := []string{"--listen=127.0.0.1:0", "--data-dir=data"}
	if storage := ts.Getenv("STORAGE"); storage != "" {
		flags = append(flags, "--storage="+storage)
	}
	cmd := exec.Command(binary, slices.Concat(first, flags, args)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"))
	cmd.Stderr = &s.log
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	s.cmd = cmd
	ready := make(chan string, 1)
	s.stdout = make(chan struct{})
	go func() {
		defer close(s.stdout)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case ready <- lines.Text():
			default:
				fmt.Fprintf(&s.log, "unexpected on stdout: %s\n", lines.Text())
			}
		}
	}()
	select {
	case line := <-ready:
		m := readyLine.FindStringSubmatch(line)
		if m == nil {
			ts.Fatalf("serve: stdout is %q, want a match of %s", line, readyLine)
		}
		ts.Setenv("SERVER", m[1])
		fmt.Fprintln(ts.Stdout(), line)
	case <-s.stdout:
		err := cmd.Wait()
		s.cmd = nil
		ts.Fatalf("serve: the server ended before it was ready: %v\n%s", err, &s.log)
	case <-time.After(patience):
		ts.Fatalf("serve: not ready after %v\n%s", patience, &s.log)
	}
}

// lookPath is exec.LookPath for the PATH of a script.
func lookPath(name, path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH", name)
}

func shutdown(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if neg || len(args) > 0 || s.cmd == nil {
		ts.Fatalf("usage: shutdown, after serve")
	}
	ts.Check(s.end())
	fmt.Fprint(ts.Stderr(), &s.log)
}

func crash(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if neg || len(args) > 0 || s.cmd == nil {
		ts.Fatalf("usage: crash, after serve")
	}
	ts.Check(s.cmd.Process.Kill())
	<-s.stdout
	_ = s.cmd.Wait() // says that it was killed
	s.cmd = nil
}

// end stops the server and reports what went wrong in its life.
func (s *server) end() error {
	if s.cmd == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd = nil
	begun := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the server: %w\n%s", err, &s.log)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	<-s.stdout
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the server was stopped, after %v: %w, want exit status 0\n%s", time.Since(begun), err, &s.log)
	}
	if strings.Contains(s.log.String(), "panic") {
		return fmt.Errorf("the server's log has a panic:\n%s", &s.log)
	}
	return nil
}

func anonymous(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: anonymous PATH")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: patience}
	resp, err := client.Get(ts.Getenv("SERVER") + args[0])
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n%s\n", resp.Status, body)
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually COMMAND...")
	}
	begun := time.Now()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		out, err := run(ts, args)
		if err == nil {
			return
		}
		if time.Since(begun) > patience {
			ts.Fatalf("eventually: %v still fails after %v: %v\n%s", args, patience, err, out)
		}
		time.Sleep(pause) // a command takes longer of the processors than what it waits for
	}
}

func each(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: each FILE COMMAND..., with {} for the line")
	}
	lines := strings.Fields(ts.ReadFile(args[0]))
	if len(lines) == 0 {
		ts.Fatalf("each: %s is empty", args[0])
	}
	var errs []error
	for _, line := range lines {
		words := make([]string, 0, len(args)-1)
		for _, word := range args[1:] {
			words = append(words, strings.ReplaceAll(word, "{}", line))
		}
		out, err := run(ts, words)
		fmt.Fprintf(ts.Stdout(), "%s", out)
		if ended := (&exec.ExitError{}); (err != nil) != neg || err != nil && !errors.As(err, &ended) {
			errs = append(errs, fmt.Errorf("%v: %w\n%s", words, cmp.Or(err, errors.New("succeeded")), out))
		}
	}
	ts.Check(errors.Join(errs...))
}

// run runs a command in the script's environment and returns what it printed.
func run(ts *testscript.TestScript, args []string) ([]byte, error) {
	cmd, err := Command(ts, args)
	if err != nil {
		return nil, err
	}
	return cmd.CombinedOutput()
}

// Command is a command with the script's folder and environment.
func Command(ts *testscript.TestScript, args []string) (*exec.Cmd, error) {
	binary, err := lookPath(args[0], ts.Getenv("PATH"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"), "HOME="+ts.Getenv("HOME"), "KUBECONFIG="+ts.Getenv("KUBECONFIG"))
	return cmd, nil
}

// keep sets a variable to what the last command printed: "keep UID".
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// fewer COUNT REGEXP fails when COUNT lines or more of the last output match.
func fewer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fewer COUNT REGEXP")
	}
	limit, err := strconv.Atoi(args[0])
	ts.Check(err)
	line, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	if n := len(line.FindAllString(ts.ReadFile("stdout"), -1)); n >= limit {
		ts.Fatalf("%d lines match %s, want fewer than %d", n, args[1], limit)
	}
}
