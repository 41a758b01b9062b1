package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"
)

const (
	// idle is how long nothing may come or go before a connection ends, as at a kubelet.
	idle = 4 * time.Hour
	// creation is how long a client may take to open the streams it announced.
	creation = 30 * time.Second
)

// Size is that of a terminal, in characters.
type Size = remotecommand.TerminalSize

// Terminal is what a client of a [Console] reads and writes.
type Terminal struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	Resize         <-chan Size
}

// Wants are the streams that a client asked for.
type Wants struct {
	Stdin  bool `json:"stdin,omitempty"`
	Stdout bool `json:"stdout,omitempty"`
	Stderr bool `json:"stderr,omitempty"`
	TTY    bool `json:"tty,omitempty"`
}

// Console is an http.Handler that runs a function with the client's terminal.
type Console struct {
	Wants Wants
	// Attach says that errors are of an attach, which has no exit code.
	Attach bool
	// Run is what runs. An error with an ExitCode or an ExitStatus above 0 is the exit code
	// of the client.
	Run func(context.Context, Terminal) error
}

// ServeHTTP implements http.Handler. The request comes from [tied.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		c.serve(w, r)
		return
	}
	j := join(r.Context(), http.HandlerFunc(c.serve))
	defer j.stop()
	translator.NewStreamTranslatorHandler(j.location, j.transport, 0, translator.Options{
		Stdin: c.Wants.Stdin, Stdout: c.Wants.Stdout, Stderr: c.Wants.Stderr && !c.Wants.TTY, Tty: c.Wants.TTY,
	}).ServeHTTP(w, r)
}

// serve speaks SPDY, or the first four versions of the protocol over a WebSocket.
func (c *Console) serve(w http.ResponseWriter, r *http.Request) {
	options := &remotecommand.Options{
		Stdin: c.Wants.Stdin, Stdout: c.Wants.Stdout, Stderr: c.Wants.Stderr && !c.Wants.TTY, TTY: c.Wants.TTY,
	}
	f := &function{run: c.Run}
	protocols := remotecommand.SupportedStreamingProtocols
	if c.Attach {
		remotecommand.ServeAttach(w, r, f, "", "", "", options, idle, creation, protocols)
		return
	}
	remotecommand.ServeExec(w, r, f, "", "", "", nil, options, idle, creation, protocols)
}

// function is what remotecommand runs.
type function struct {
	run func(context.Context, Terminal) error
}

var (
	_ remotecommand.Executor = &function{}
	_ remotecommand.Attacher = &function{}
)

// ExecInContainer implements remotecommand.Executor.
//
//nolint:revive // upstream's arguments
func (f *function) ExecInContainer(ctx context.Context, _, _, _ string, _ []string,
	in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan Size, _ time.Duration,
) error {
	return withExitCode(f.AttachContainer(ctx, "", "", "", in, out, err, tty, resize))
}

// AttachContainer implements remotecommand.Attacher.
//
//nolint:revive // upstream's arguments
func (f *function) AttachContainer(ctx context.Context, _, _, _ string,
	in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan Size,
) (e error) {
	t := Terminal{Stdin: in, Stdout: io.Discard, Stderr: io.Discard, TTY: tty}
	if in == nil {
		t.Stdin = strings.NewReader("")
	}
	if out != nil {
		t.Stdout = out
	}
	switch {
	case tty:
		t.Stderr, t.Resize = t.Stdout, resize
	case err != nil:
		t.Stderr = err
	}
	defer recovered(ctx, &e)
	return f.run(ctx, t)
}

// withExitCode makes an error that has an exit code one that remotecommand knows.
func withExitCode(err error) error {
	code := 0
	if status := (interface {
		error
		ExitStatus() int
	})(nil); errors.As(err, &status) {
		code = status.ExitStatus()
	} else if exit := (interface {
		error
		ExitCode() int // of os/exec
	})(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if code <= 0 {
		return err
	}
	return utilexec.CodeExitError{Err: err, Code: code}
}

// recovered makes an error of a panic: the functions may run where nothing else recovers.
func recovered(ctx context.Context, err *error) {
	if p := recover(); p != nil {
		klog.FromContext(ctx).Error(nil, "A function that serves a stream panicked", "panic", p, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic: %v", p)
	}
}
