package examples

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long is waited for what takes milliseconds, on a machine busy with all tests at once.
const patience = 2 * time.Minute

// command is a command of a README and what it prints.
type command struct {
	line   int
	text   string
	output []string
}

// parse reads the console blocks of a README.
func parse(readme string) ([]command, error) {
	var commands []command
	inside, first := false, false
	for i, line := range strings.Split(readme, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
			first = inside
		case !inside:
		case strings.HasPrefix(line, "$ "):
			commands = append(commands, command{line: i + 1, text: strings.TrimPrefix(line, "$ ")})
			first = false
		case first:
			return nil, fmt.Errorf("README.md:%d: a console block starts with a command: \"$ kubectl get namespaces\"", i+1)
		default:
			c := &commands[len(commands)-1]
			if strings.Contains(c.text, "<<'EOF'") && !strings.HasSuffix(c.text, "\nEOF") {
				c.text += "\n" + line
				continue
			}
			c.output = append(c.output, line)
		}
	}
	return commands, nil
}

// session is a running example and the shell beside it.
type session struct {
	t       *testing.T
	dir     string
	program *exec.Cmd
	out     buffer
	env     []string
	ended   chan error
}

// buffer is written by the process and read by the test.
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

// prepare makes a session in a folder of its own, in which examples is that of the repository, and
// bin has what was built.
func prepare(t *testing.T) *session {
	t.Helper()
	s := &session{t: t, dir: t.TempDir()}
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(examples, filepath.Join(s.dir, "examples")), os.Symlink(binaries, filepath.Join(s.dir, "bin"))); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "HOME="+s.dir) // where kubectl keeps what it discovered
	return s
}

// start starts an example and waits for its kubeconfig, whose path it returns.
func (s *session) start(name string, flags ...string) string {
	s.t.Helper()
	kubeconfig := filepath.Join(s.dir, "admin.kubeconfig")
	if err := os.Remove(kubeconfig); err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	switch name {
	case "minimal": // which has no flags
	case registry:
		flags = append([]string{"serve", "--listen=127.0.0.1:0"}, flags...)
	default:
		flags = append(flags, "-listen=127.0.0.1:0")
	}
	s.launch(exec.Command(filepath.Join(binaries, name), flags...), kubeconfig)
	return kubeconfig
}

// launch starts a program in the session's folder and waits for its kubeconfig.
func (s *session) launch(program *exec.Cmd, kubeconfig string) {
	s.t.Helper()
	program.Dir, program.Stdout, program.Stderr = s.dir, &s.out, &s.out
	if err := program.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.program, s.ended = program, make(chan error, 1)
	ended := s.ended
	go func() {
		defer close(ended)
		ended <- program.Wait()
	}()
	s.t.Cleanup(func() {
		_ = program.Process.Kill() // when the test did not get to stop
		for range ended {          // until it is closed
		}
	})
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		// A program that writes the file in place has it empty for a moment.
		if config, err := clientcmd.LoadFromFile(kubeconfig); err == nil && config.CurrentContext != "" {
			return
		}
		select {
		case err := <-s.ended:
			s.t.Fatalf("%s ended: %v\n%s", program.Path, err, &s.out)
		default:
		}
		if time.Since(begun) > patience {
			s.t.Fatalf("%s has written no kubeconfig in %v\n%s", program.Path, patience, &s.out)
		}
	}
}

// follow runs commands, and compares what they print.
func (s *session) follow(commands []command) {
	s.t.Helper()
	watches := map[*buffer]command{}
	for _, c := range commands {
		if watch.MatchString(c.text) {
			watches[s.watch(c)] = c
		} else {
			s.run(c)
		}
	}
	for out, c := range watches {
		s.prints(c, strings.Join(c.output, "\n"), out)
	}
}

// watch starts a command that goes on until the test ends, and returns what it prints. When it
// returns, the server has answered: the command prints what changes from here on.
func (s *session) watch(c command) *buffer {
	s.t.Helper()
	var out, requests buffer
	kubectl := exec.Command("sh", "-c", "exec "+c.text+" -v=6") // so that it says what it asked for
	kubectl.Dir, kubectl.Env, kubectl.Stdout, kubectl.Stderr = s.dir, s.env, &out, &requests
	if err := kubectl.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = kubectl.Process.Kill()
		_ = kubectl.Wait() // it was killed
	})
	for begun := time.Now(); !answered.MatchString(requests.String()); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			s.t.Fatalf("README.md:%d: $ %s\nwatches nothing:\n%s\n%s", c.line, c.text, &out, &requests)
		}
	}
	return &out
}

// run runs a command and compares what it prints.
func (s *session) run(c command) {
	s.t.Helper()
	if assignment, ok := strings.CutPrefix(c.text, "export "); ok {
		s.env = append(s.env, assignment)
		return
	}
	want := strings.Join(c.output, "\n")
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		shell := exec.Command("sh", "-c", c.text)
		shell.Dir, shell.Env = s.dir, s.env
		out, err := shell.CombinedOutput()
		if shell.ProcessState.ExitCode() == 127 {
			s.lacking(fmt.Sprintf("README.md:%d: not installed: %s", c.line, bytes.TrimSpace(out)))
		}
		// A command that fails says so in what it prints, which is compared.
		if err != nil && len(c.output) == 0 {
			s.t.Fatalf("README.md:%d: %s: %v\n%s", c.line, c.text, err, out)
		}
		got := normal(strings.TrimSuffix(string(out), "\n"))
		if pattern(want).MatchString(got) || strings.Contains(c.text, " --for=delete") && strings.HasSuffix(got, " condition met") {
			return // what is gone before kubectl looks is not mentioned
		}
		if !reads.MatchString(c.text) && !tooEarly.Match(out) || time.Since(begun) > patience {
			s.t.Errorf("README.md:%d: $ %s\nprints:\n%s\nand not:\n%s", c.line, c.text, out, want)
			return
		}
	}
}

// lacking ends a test for want of a program: with an error where nothing may be missing.
func (s *session) lacking(what string) {
	s.t.Helper()
	if os.Getenv("SAILPLANE_CI") != "" {
		s.t.Fatal(what)
	}
	s.t.Skip(what)
}

// prints waits until a command that goes on has printed what it shall print.
func (s *session) prints(c command, want string, out *buffer) {
	s.t.Helper()
	for begun := time.Now(); !pattern(want).MatchString(normal(strings.TrimSpace(out.String()))); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			s.t.Errorf("README.md:%d: $ %s\nprints:\n%s\nand not:\n%s", c.line, c.text, out, strings.Join(c.output, "\n"))
			return
		}
	}
}

// client is a client with the rights of a kubeconfig.
func (s *session) client(kubeconfig string) dynamic.Interface {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// stop interrupts the program, as a user does, and wants it to end well.
func (s *session) stop() {
	s.t.Helper()
	if err := s.program.Process.Signal(os.Interrupt); err != nil {
		s.t.Fatal(err)
	}
	select {
	case err := <-s.ended:
		if err != nil || strings.Contains(s.out.String(), "panic") {
			s.t.Errorf("the program ended badly: %v\n%s", err, &s.out)
		}
	case <-time.After(patience):
		s.t.Errorf("the program still runs %v after an interrupt\n%s", patience, &s.out)
	}
}

var (
	// reads are commands that can be repeated: controllers have a moment for what
	// they have to do.
	reads = regexp.MustCompile(`^kubectl (get|describe|api-resources|api-versions|auth can-i|events) `)
	// watch are commands that go on, and answered is what kubectl logs of the answer to one.
	watch    = regexp.MustCompile(`^kubectl .* --watch\b`)
	answered = regexp.MustCompile(`[?&]watch=true.*\b200 OK`)
	// tooEarly is what others print, and do nothing, a moment after a binding was
	// written that RBAC has yet to learn of, a CRD whose kind is not served yet, or
	// the first count of a quota, which admission has yet to learn of.
	tooEarly = regexp.MustCompile(` is forbidden: User |no matches for kind |status unknown for quota: `)
)

var (
	age   = regexp.MustCompile(`\b(\d+[hms])+\b`)
	space = regexp.MustCompile(`[ \t]+`)
)

// normal is text without what differs from run to run.
func normal(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(space.ReplaceAllString(age.ReplaceAllString(line, "<age>"), " "))
	}
	return strings.Join(lines, "\n")
}

// pattern is what matches the text, in which "..." stands for anything.
func pattern(text string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(normal(text)), `\.\.\.`, `.*`) + `$`)
}
