// Package behind runs API servers behind another one, the front, each in a process of its own,
// and does harm to them.
package behind

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a process may take to be ready before it counts as hanging.
const patience = 2 * time.Minute

// Process is a program that runs until it is killed.
type Process struct {
	command *exec.Cmd
	file    string
	before  int64 // what earlier processes wrote to the file
	exited  chan struct{}
}

// Start starts a program. What it writes is added to a file. The process has a group of its
// own: Ctrl-C is for the program that started it, which ends it then.
func Start(file string, command *exec.Cmd) (*Process, error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &Process{command: command, file: file, exited: make(chan struct{})}
	if p.before, err = out.Seek(0, 2); err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr, command.SysProcAttr = out, out, &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = command.Wait() // it is killed
		close(p.exited)
	}()
	return p, nil
}

// Text is what the process wrote so far.
func (p *Process) Text() string {
	text, _ := os.ReadFile(p.file) // there is none when its directory is gone
	return string(text[min(p.before, int64(len(text))):])
}

// String is the command.
func (p *Process) String() string { return p.command.String() }

// PID is the ID of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Exited is closed when the process ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Signal sends a signal, unless the process ended.
func (p *Process) Signal(s syscall.Signal) error { return p.command.Process.Signal(s) }

// Kill ends the process so that it cannot react.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGCONT) // it may be stopped, or have ended
	_ = p.command.Process.Kill()
	<-p.exited
}

// Stop asks the process to end, which it has to do without an error.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		return fmt.Errorf("%s does not end within %v of SIGTERM", p, patience)
	}
	if code := p.command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ends with %d after SIGTERM, want 0: %s", p, code, p.Text())
	}
	return nil
}

// Front is a server of Sailplane that has others behind it.
type Front struct {
	*Process
	Dir, Kubeconfig string
}

// Serve starts a front with its data in a folder, and returns when it is ready.
func Serve(ctx context.Context, dir string, args ...string) (*Front, error) {
	return ServeBy(ctx, "sailplane", dir, args...)
}

// ServeBy starts another program that is a front: it takes the flags of sailplane serve, and says as that does when it
// is ready.
func ServeBy(ctx context.Context, program, dir string, args ...string) (*Front, error) {
	command := exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir}, args...)...)
	p, err := Start(filepath.Join(dir, "log"), command)
	if err != nil {
		return nil, err
	}
	f := &Front{Process: p, Dir: dir, Kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	err = Until(ctx, patience, func(context.Context) error {
		select {
		case <-p.exited:
			return nil
		default:
		}
		if !strings.Contains(p.Text(), "ready at https://") {
			return errors.New("it is not ready")
		}
		return nil
	})
	select {
	case <-p.exited:
		return nil, fmt.Errorf("%s ended: %s", p, p.Text())
	default:
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	return f, nil
}

// Try runs kubectl as the administrator, and returns all that it says.
func (f *Front) Try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("kubectl", append([]string{"--kubeconfig", f.Kubeconfig, "--cache-dir", filepath.Join(f.Dir, "cache")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Until waits for something to hold, for so long. The error is that of the last attempt.
func Until(ctx context.Context, limit time.Duration, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if Pause(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

// Pause waits, unless the context ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Port is one that was free a moment ago, for programs that do not tell theirs. It is none of those that kernels
// choose: nobody who asks for any port takes it before the program does.
func Port() (string, error) {
	const first, last = 15000, 32000 // Linux chooses from 32768 on
	var errs []error
	for range 20 {
		port := strconv.Itoa(first + rand.IntN(last-first))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			return port, l.Close()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
