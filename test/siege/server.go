package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a server may take to start or to stop.
const patience = 2 * time.Minute

// server is one that runs.
type server struct {
	command    *exec.Cmd
	log        bytes.Buffer
	kubeconfig string
	done       chan struct{}
	err        error
}

// tokens are the users of the server, with their groups.
const tokens = "token-of-tenant,tenant,1\ntoken-of-attacker,attacker,2\ntoken-of-definer,definer,3\n"

// configuration has the address of the attackers count: by default, all of loopback is trusted.
const configuration = `apiVersion: sailplane.dev/v1alpha1
kind: Server
limits:
  addresses:
    trusted: [127.0.0.1/32]
`

// start starts a server with the defaults, and waits until it is ready.
func (o options) start(ctx context.Context, dir, storage string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	users, config := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "config.yaml")
	if err := errors.Join(os.WriteFile(users, []byte(tokens), 0o600), os.WriteFile(config, []byte(configuration), 0o600)); err != nil {
		return nil, err
	}
	args := []string{"serve", "--config=" + config, "--listen=127.0.0.1:0", "--data-dir=" + dir, "--token-auth-file=" + users, "--storage-api"}
	switch storage {
	case "etcd": // the default
	case "sqlite":
		args = append(args, "--storage=sqlite:"+filepath.Join(dir, "objects.db"))
	default:
		args = append(args, "--storage="+storage)
	}
	s := &server{kubeconfig: filepath.Join(dir, "admin.kubeconfig"), done: make(chan struct{})}
	s.command = exec.CommandContext(ctx, o.binary, append(args, o.args...)...)
	s.command.Cancel = func() error { return s.command.Process.Signal(syscall.SIGTERM) }
	s.command.WaitDelay = patience
	s.command.Stdout, s.command.Stderr = &s.log, &s.log
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		s.err = s.command.Wait()
	}()
	// The kubeconfig is written when the server is ready.
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(s.kubeconfig); err == nil {
			return s, nil
		}
		if err := s.ended(); err != nil {
			return nil, err
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("the server is not ready after %v", patience), s.stop())
		}
	}
}

// ended is an error when the server has ended by itself.
func (s *server) ended() error {
	select {
	case <-s.done:
		log := s.log.String()
		return fmt.Errorf("the server ended: %w\n%s", s.err, log[max(0, len(log)-4<<10):])
	default:
		return nil
	}
}

func (s *server) stop() error {
	if err := s.ended(); err != nil {
		return err
	}
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil // requests that were cut off are no failure of a siege
	case <-time.After(patience):
		err := s.command.Process.Kill()
		<-s.done
		return errors.Join(fmt.Errorf("the server did not stop within %v", patience), err)
	}
}

// resident is how much memory a process has and had, in bytes.
type resident struct{ now, peak float64 }

func (s *server) memory() (resident, error) {
	name := fmt.Sprintf("/proc/%d/status", s.command.Process.Pid)
	content, err := os.ReadFile(name)
	if err != nil {
		return resident{}, err
	}
	var r resident
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "VmRSS:" && fields[0] != "VmHWM:" {
			continue
		}
		kib, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return r, fmt.Errorf("%s: %q: %w", name, line, err)
		}
		if fields[0] == "VmRSS:" {
			r.now = kib * 1024
		} else {
			r.peak = kib * 1024
		}
	}
	if r.now == 0 || r.peak == 0 {
		return r, fmt.Errorf("%s says nothing of memory", name)
	}
	return r, nil
}

// forgetPeak makes the present memory the peak.
func (s *server) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.command.Process.Pid), []byte("5"), 0)
}

// cpu is the processor time that the server has used; 0 if it has ended.
func (s *server) cpu() time.Duration {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.command.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	const user, system, ticks = 11, 12, 100 // of a second
	if len(fields) <= system {
		return 0
	}
	var sum time.Duration
	for _, f := range []string{fields[user], fields[system]} {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum
}
