package storage

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

// wire is a network in front of an etcd that can be cut, or be silent.
type wire struct {
	listener net.Listener

	mu    sync.Mutex
	to    string
	state string // "", "cut", "silent"
	open  map[net.Conn]struct{}
	turn  *sync.Cond
	done  sync.WaitGroup
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, to: to, open: map[net.Conn]struct{}{}}
	w.turn = sync.NewCond(&w.mu)
	w.done.Go(w.accept)
	t.Cleanup(func() {
		l.Close()
		w.set("cut")
		w.done.Wait()
	})
	return w
}

func (w *wire) set(state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = state
	if state == "cut" {
		for c := range w.open {
			c.Close()
		}
	}
	w.turn.Broadcast()
}

// lead has new connections go elsewhere, and ends those there are.
func (w *wire) lead(to string) {
	w.set("cut")
	w.mu.Lock()
	w.to = to
	w.mu.Unlock()
	w.set("")
}

// pass waits while the wire is silent.
func (w *wire) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.state == "silent" {
		w.turn.Wait()
	}
}

func (w *wire) hold(conns ...net.Conn) (ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.open[c] = struct{}{}
	}
	return w.state != "cut"
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		to := w.to
		w.mu.Unlock()
		far, err := net.Dial("tcp", to) //nolint:noctx // of a test, on loopback
		if err != nil {
			near.Close()
			continue
		}
		if !w.hold(near, far) {
			near.Close()
			far.Close()
			continue
		}
		for from, to := range map[net.Conn]net.Conn{near: far, far: near} {
			w.done.Go(func() {
				defer to.Close()
				_, _ = io.Copy(to, reader{from, w}) // ends with either
			})
		}
	}
}

type reader struct {
	net.Conn
	wire *wire
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.wire.pass()
	return n, err
}

// TestOutage: while an external etcd cannot be reached, or does not answer, requests
// end with 503 and say when to try again, and /readyz says which storage is gone. When
// it is back it is used again.
func TestOutage(t *testing.T) {
	t.Parallel()
	for state, failed := range map[string]string{"cut": "[-]storage-etcd-answer", "silent": "[-]storage-etcd-speed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, listening(t))
			cluster := etcd.Cluster{Endpoints: []string{"http://" + w.listener.Addr().String()}, DialTimeout: patience, RequestTimeout: 300 * time.Millisecond}
			c := serving(t, cluster)
			t.Cleanup(func() { w.set("") })
			if err := create(t, c, "before", ""); err != nil {
				t.Fatal(err)
			}
			w.set(state)
			refused(t, "a create", create(t, c, "meanwhile", ""))
			refused(t, "a list", list(t, c))
			awaitReady(t, c, http.StatusInternalServerError, failed)
			w.set("")
			awaitReady(t, c, http.StatusOK)
			if err := create(t, c, "after", ""); err != nil {
				t.Errorf("the storage is back, and a create ends in %v", err)
			}
		})
	}
}

// serving runs a server of ConfigMaps until the test ends, and returns its client.
func serving(t *testing.T, storage controlplane.Storage, parts ...controlplane.Part) *kubernetes.Clientset {
	t.Helper()
	return serveParts(t, storage, append(parts, core.Namespaces{KeepDeleted: true}, core.ConfigMaps{})...)
}

func serveParts(t *testing.T, storage controlplane.Storage, parts ...controlplane.Part) *kubernetes.Clientset {
	t.Helper()
	s, err := controlplane.New("outage").Storage(storage).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	config := s.ClientConfig()
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listening runs an etcd and returns its address.
func listening(t *testing.T) string {
	t.Helper()
	for tries := 1; ; tries++ { // somebody else may be given the port meanwhile
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		b := etcd.Embedded{Dir: t.TempDir(), UnsafeNoSync: true, Listen: []string{"http://" + address}}.Open()
		err = b.Start(t.Context())
		t.Cleanup(func() {
			if err := b.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		if err == nil {
			return address
		}
		if tries == 5 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
	}
}

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if _, again := apierrors.SuggestsClientDelay(err); !again || !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%s ends in %v, want 503 with Retry-After", what, err)
	}
}

// awaitReady waits until /readyz has a code and says all that is wanted.
func awaitReady(t *testing.T, c *kubernetes.Clientset, code int, want ...string) string {
	t.Helper()
	var got int
	var body []byte
	lacks := func(w string) bool { return !strings.Contains(string(body), w) }
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		body, _ = c.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).StatusCode(&got).Raw()
		if got == code && !slices.ContainsFunc(want, lacks) {
			return string(body)
		}
	}
	t.Fatalf("/readyz is %d after %v, want %d and %q:\n%s", got, patience, code, want, body)
	return ""
}
