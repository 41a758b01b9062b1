package behind

import (
	"context"
	"path/filepath"
	"syscall"
	"time"
)

// Fault is what can happen to a server.
type Fault struct {
	Name string
	// Reason is what the front sees of it.
	Reason string
	// Away: requests to the server cannot be answered meanwhile.
	Away       bool
	Hurt, Mend func(ctx context.Context, s *Server) error
}

// A server that is slow runs for running after each pause of stopped. It finds the time for a
// TLS handshake, which tells the front that it is alive.
const (
	stopped = 200 * time.Millisecond
	running = 50 * time.Millisecond
)

// Faults are all that can happen.
func Faults() []Fault {
	run := func(_ context.Context, s *Server) error { return s.Run() }
	return []Fault{
		{"killed", "nobody listens", true, func(_ context.Context, s *Server) error {
			s.Kill()
			return nil
		}, run},
		{
			"frozen", "connections are taken, and nothing comes", true,
			func(_ context.Context, s *Server) error { return s.Signal(syscall.SIGSTOP) },
			func(_ context.Context, s *Server) error { return s.Signal(syscall.SIGCONT) },
		},
		{"elsewhere", "its address is another one, which the APIService does not say yet", true, func(_ context.Context, s *Server) error {
			s.Kill()
			port, err := Port()
			if err != nil {
				return err
			}
			s.Port = port
			return s.Run()
		}, func(ctx context.Context, s *Server) error { return s.Announce(ctx) }},
		{"wrong certificate", "it may be somebody else", true, func(_ context.Context, s *Server) error {
			s.Kill()
			var err error
			if s.CertFile, s.KeyFile, _, err = Certificate(filepath.Join(s.Dir, "wrong")); err != nil {
				return err
			}
			return s.Run()
		}, func(_ context.Context, s *Server) error {
			s.Kill()
			s.CertFile, s.KeyFile = s.right.file, s.right.key
			return s.Run()
		}},
		{"slow", "answers come late", false, func(_ context.Context, s *Server) error {
			s.stutter()
			return nil
		}, func(_ context.Context, s *Server) error {
			close(s.stuttered)
			<-s.recovered
			return nil
		}},
	}
}

// stutter stops the process most of the time, as if its machine had too much to do.
func (s *Server) stutter() {
	stuttered, recovered, p := make(chan struct{}), make(chan struct{}), s.Process
	s.stuttered, s.recovered = stuttered, recovered
	go func() {
		defer close(recovered)
		for {
			_ = p.Signal(syscall.SIGSTOP) // it may have been killed, as the next
			over := wait(stuttered, stopped)
			_ = p.Signal(syscall.SIGCONT)
			if over || wait(stuttered, running) {
				return
			}
		}
	}()
}

// wait tells whether the channel was closed in the time.
func wait(closed <-chan struct{}, d time.Duration) bool {
	select {
	case <-closed:
		return true
	case <-time.After(d):
		return false
	}
}
