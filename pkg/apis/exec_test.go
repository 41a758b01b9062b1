package apis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	utilexec "k8s.io/utils/exec"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

// executors are those that kubectl has: WebSockets first, SPDY where that fails.
func executors(t *testing.T, address string) map[string]remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	config := &restclient.Config{Host: u.Host}
	ws, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, address)
	must(t, err)
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	must(t, err)
	return map[string]remotecommand.Executor{"WebSocket": ws, "SPDY": spdy}
}

// sizes are those of a terminal, one after the other.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, open := <-s
	if !open {
		return nil
	}
	return &size
}

// TestExec: the function has the client's streams, and the client its errors.
func TestExec(t *testing.T) {
	t.Parallel()
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Exec("console", func(_ context.Context, a *fruit.Apple, o *corev1.PodExecOptions, s apis.Streams) error {
			in, err := io.ReadAll(s.Stdin)
			fmt.Fprintf(s.Stdout, "%s %s %s", a.Spec.Variety, o.Command, in)
			fmt.Fprint(s.Stderr, "to err")
			switch {
			case err != nil:
				return err
			case len(o.Command) == 0:
				return nil
			case o.Command[0] == "exit":
				return fmt.Errorf("wrapped: %w", utilexec.CodeExitError{Err: errors.New("out"), Code: 42})
			case o.Command[0] == "panic":
				panic("rotten")
			}
			return errors.New("no such command")
		}))).plant()
	for name, c := range map[string]struct {
		query, in, out, err, message string
		code                         int
	}{
		"streams":     {query: "stdin=1&stdout=1&stderr=1", in: "abc", out: "cox [] abc", err: "to err"},
		"only stdout": {query: "stdout=1&command=exit", out: "cox [exit] ", code: 42},
		"exit code":   {query: "stdout=1&command=exit&command=x", out: "cox [exit x] ", code: 42},
		"error":       {query: "stderr=1&command=fly", err: "to err", message: "no such command"},
		"panic":       {query: "stderr=1&command=panic", err: "to err", message: "rotten"},
	} {
		for kind, e := range executors(t, s.url+treePath+"/console?"+c.query) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				var out, stderr bytes.Buffer
				options := remotecommand.StreamOptions{}
				if strings.Contains(c.query, "stdin") {
					options.Stdin = strings.NewReader(c.in)
				}
				if strings.Contains(c.query, "stdout") {
					options.Stdout = &out
				}
				if strings.Contains(c.query, "stderr") {
					options.Stderr = &stderr
				}
				err := e.StreamWithContext(t.Context(), options)
				if out.String() != c.out || stderr.String() != c.err {
					t.Errorf("stdout is %q, stderr %q", out.String(), stderr.String())
				}
				var exit exec.CodeExitError
				switch {
				case c.code > 0:
					if !errors.As(err, &exit) || exit.Code != c.code {
						t.Errorf("the error is %v, want the exit code %d", err, c.code)
					}
				case c.message != "":
					if err == nil || !strings.Contains(err.Error(), c.message) {
						t.Errorf("the error is %v, want %q", err, c.message)
					}
				case err != nil:
					t.Error(err)
				}
			})
		}
	}
	s.call(400, http.MethodPost, treePath+"/console?stdout=1", "{}")
	s.call(404, http.MethodPost, "v1/namespaces/garden/apples/other/console?stdout=1", "{}")
	s.call(405, http.MethodPut, treePath+"/console?stdout=1", "{}")
	s.call(400, http.MethodPost, treePath+"/console", "", "Connection", "Upgrade", "Upgrade", "SPDY/3.1")
}

// TestExecTerminal: a terminal has one output, and its sizes arrive in their order.
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Attach("console", func(_ context.Context, _ *fruit.Apple, _ *corev1.PodAttachOptions, s apis.Streams) error {
			if !s.TTY {
				return errors.New("no terminal")
			}
			for range 2 {
				size := <-s.Resize
				fmt.Fprintf(s.Stderr, "%dx%d ", size.Width, size.Height)
			}
			return nil
		}))).plant()
	for kind, e := range executors(t, s.url+treePath+"/console?stdin=1&stdout=1&stderr=1&tty=1") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			in, input := io.Pipe() // never says anything
			defer input.Close()
			queue := make(sizes, 2)
			queue <- remotecommand.TerminalSize{Width: 80, Height: 24}
			queue <- remotecommand.TerminalSize{Width: 120, Height: 40}
			close(queue)
			must(t, e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: queue}))
			if want := "80x24 120x40 "; out.String() != want {
				t.Errorf("the sizes are %q, want %q", out.String(), want)
			}
		})
	}
}

// onlyGet allows the verb get.
type onlyGet struct{ authorizer.Authorizer }

func (onlyGet) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "get" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "only get", nil
}

// TestExecNeedsCreate: who may only get a console may not open it, though a WebSocket begins
// with a GET.
func TestExecNeedsCreate(t *testing.T) {
	t.Parallel()
	called := make(chan struct{}, 1)
	s := serveFor(t, onlyGet{}, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Exec("console", func(context.Context, *fruit.Apple, *corev1.PodExecOptions, apis.Streams) error {
			called <- struct{}{}
			return nil
		}),
		apis.PortForward("ports", func(context.Context, *fruit.Apple, uint16, io.ReadWriteCloser) error { return nil }),
	)).plant()
	for _, path := range []string{"/console?stdout=1", "/ports"} {
		a := s.call(403, http.MethodGet, treePath+path, "")
		if !strings.Contains(a.body, "cannot create resource") {
			t.Errorf("the answer does not say why: %s", a.body)
		}
	}
	err := executors(t, s.url+treePath+"/console?stdout=1")["WebSocket"].
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || len(called) > 0 {
		t.Errorf("the console opened: %v", err)
	}
}

// TestExecOldWebSocket: browsers and old clients speak the first four versions of the protocol.
func TestExecOldWebSocket(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 1)
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Exec("console", func(ctx context.Context, _ *fruit.Apple, _ *corev1.PodExecOptions, s apis.Streams) error {
			in := make([]byte, 3)
			if _, err := io.ReadFull(s.Stdin, in); err != nil {
				return err
			}
			fmt.Fprintf(s.Stdout, "<%s>", in)
			<-ctx.Done()
			ended <- struct{}{}
			return nil
		}))).plant()
	for _, protocol := range []string{"v4.channel.k8s.io", "channel.k8s.io"} {
		ws, err := websocket.Dial("ws"+strings.TrimPrefix(s.url, "http")+treePath+"/console?stdin=1&stdout=1", protocol, s.url)
		must(t, err)
		must(t, websocket.Message.Send(ws, []byte("\x00abc")))
		var got []byte
		for !bytes.HasSuffix(got, []byte("<abc>")) { // each channel begins with an empty message
			must(t, websocket.Message.Receive(ws, &got))
		}
		if want := "\x01<abc>"; string(got) != want {
			t.Errorf("%s: got %q, want %q", protocol, got, want)
		}
		must(t, ws.Close())
		wait(t, "the context's end", ended)
	}
}

// TestExecAborted: many clients that go away leave nothing, and the functions learn it.
func TestExecAborted(t *testing.T) { //nolint:paralleltest // it counts goroutines
	const clients, atOnce = 1000, 50
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Exec("console", func(ctx context.Context, _ *fruit.Apple, _ *corev1.PodExecOptions, s apis.Streams) error {
			fmt.Fprint(s.Stdout, "hello")
			<-ctx.Done()
			return ctx.Err()
		}))).plant()
	check := leaktest.Check(t)
	var running sync.WaitGroup
	for i := range atOnce {
		running.Go(func() {
			for n := range clients / atOnce {
				kind := []string{"WebSocket", "SPDY"}[(i+n)%2]
				e := executors(t, s.url+treePath+"/console?stdin=1&stdout=1")[kind]
				ctx, abort := context.WithCancel(t.Context())
				in, input := io.Pipe()
				err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: aborter{abort}})
				abort()
				input.Close()
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
	running.Wait()
	check()
}

// aborter aborts when something comes.
type aborter struct{ abort func() }

func (a aborter) Write(p []byte) (int, error) {
	a.abort()
	return len(p), nil
}
