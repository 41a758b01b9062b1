package aggregator_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyAnswer(w http.ResponseWriter, r *http.Response) {
	for name, values := range r.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.StatusCode)
	_, _ = io.Copy(w, r.Body)
}

// frozen is a listener whose connections are taken, and say nothing more, while it is frozen,
// as those of a process that is stopped.
type frozen struct {
	net.Listener
	accepted signal.Change

	mu    sync.Mutex
	still chan struct{} // closed when it goes on
}

func (f *frozen) freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	still := make(chan struct{})
	f.still = still
	return sync.OnceFunc(func() { close(still) })
}

func (f *frozen) wait() {
	f.mu.Lock()
	still := f.still
	f.mu.Unlock()
	if still != nil {
		<-still
	}
}

// Accept implements net.Listener.
func (f *frozen) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f.accepted.Announce()
	return frozenConn{conn, f}, nil
}

type frozenConn struct {
	net.Conn
	of *frozen
}

func (c frozenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.of.wait()
	return n, err
}

func (c frozenConn) Write(b []byte) (int, error) {
	c.of.wait()
	return c.Conn.Write(b)
}

// TestAiling: a server is available while it answers, however slowly, and no longer when it
// does not, or says that it is not ready.
func TestAiling(t *testing.T) {
	t.Parallel()
	var slow, sick atomic.Bool
	asked, hold := make(chan struct{}, 100), make(chan struct{})
	var held atomic.Bool
	f := &frozen{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/things") {
			asked <- struct{}{}
		}
		switch {
		case held.Load() && strings.HasSuffix(r.URL.Path, "/things"):
			<-hold
		case slow.Load(): // until somebody looks whether the server is alive: a check is late
			select {
			case <-f.accepted.Next():
			case <-r.Context().Done():
			}
		}
		if sick.Load() && r.URL.Path == "/readyz" {
			http.Error(w, "not ready", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, `{"kind": "Answer"}`)
	}))
	s.EnableHTTP2 = true
	f.Listener = s.Listener
	s.Listener = f
	s.StartTLS()
	t.Cleanup(s.Close)
	config, _ := run(t, memory.Store{}, aggregator.APIServices{})
	service := remoteService(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	service.Annotations = map[string]string{aggregator.URLAnnotation: s.URL}
	if _, err := services(t, config).ApiregistrationV1().APIServices().Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const things = "/apis/far.example.com/v1/things"
	becomes(t, config, "True Passed")

	slow.Store(true)
	for range 3 { // longer than a server may be silent that does not even take connections
		if body, status := get(t, config, things, "application/json"); status != http.StatusOK {
			t.Errorf("slow: %d %s", status, body)
		}
		<-asked
	}
	becomes(t, config, "True Passed")
	slow.Store(false)

	sick.Store(true)
	becomes(t, config, "False FailedDiscoveryCheck")
	sick.Store(false)
	becomes(t, config, "True Passed")

	held.Store(true)
	var running sync.WaitGroup
	running.Go(func() {
		if body, status := get(t, config, things, "application/json"); status != http.StatusServiceUnavailable {
			t.Errorf("frozen: the request that runs is answered with %d %s", status, body)
		}
	})
	<-asked
	thaw := f.freeze()
	defer thaw()
	running.Wait()
	becomes(t, config, "False FailedDiscoveryCheck")
	if body, status := get(t, config, things, "application/json"); status != http.StatusServiceUnavailable {
		t.Errorf("frozen: %d %s", status, body)
	}
	close(hold)
	thaw()
	becomes(t, config, "True Passed")
}

// TestUpgrade: a stream goes through, both ways.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, `{"kind": "Answer"}`)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
		_, _ = io.Copy(conn, buffered)
	})
	s, ca := far(t, echo)
	cases := map[string]struct {
		reason string
		part   aggregator.APIServices
	}{
		"URL":     {reason: "over a connection"},
		"Handler": {reason: "by a call", part: aggregator.APIServices{Servers: []aggregator.Server{{Name: "elsewhere/api", Handler: echo}}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server, config, forbid := listening(t, c.part)
			service := remoteService(ca)
			service.Annotations = map[string]string{aggregator.URLAnnotation: s.URL}
			if _, err := services(t, config).ApiregistrationV1().APIServices().Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			becomes(t, config, "True Passed")
			conn, err := net.Dial("tcp", server)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "GET /apis/far.example.com/v1/namespaces/default/things/a/exec HTTP/1.1\r\nHost: a\r\n"+
				"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			answer := make([]byte, len("HTTP/1.1 101"))
			if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 101" {
				t.Fatalf("%s: %q, %v", c.reason, answer, err)
			}
			fmt.Fprint(conn, "to and fro")
			all, want := bufio.NewReader(conn), "to and fro"
			for got := ""; !strings.HasSuffix(got, want); {
				b, err := all.ReadByte()
				if err != nil {
					t.Fatalf("%s: %q, %v", c.reason, got, err)
				}
				got += string(b)
			}
			forbid()
			if b, err := all.ReadByte(); err == nil {
				t.Errorf("%s: the stream goes on without the right to it: %q", c.reason, b)
			}
		})
	}
}

// listening runs a server whose handler is served in the clear, to somebody who may do
// everything until that is forbidden.
func listening(t *testing.T, part aggregator.APIServices) (address string, config *rest.Config, forbid func()) {
	t.Helper()
	var forbidden atomic.Bool
	var changed func()
	everybody := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Authenticate("everybody", authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "ann"}}, true, nil
		}))
		p.Authorize("unless forbidden", unless{&forbidden})
		changed = p.RulesChanged
		return nil
	})
	forbid = func() { forbidden.Store(true); changed() }
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(everybody, part).Build()
	if err != nil {
		t.Fatal(err)
	}
	started(t, s)
	front := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front.Listener.Addr().String(), s.ClientConfig(), forbid
}

// unless allows everything until it is forbidden.
type unless struct{ forbidden *atomic.Bool }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (u unless) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	if u.forbidden.Load() {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}
