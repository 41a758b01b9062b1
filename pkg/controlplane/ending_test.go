package controlplane_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// ailing is a storage that can be told what goes wrong.
type ailing struct {
	controlplane.Storage
	done chan struct{}

	mu     sync.Mutex
	reads  error
	writes error
}

func (a *ailing) set(reads, writes error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads, a.writes = reads, writes
}

func (a *ailing) errs() (reads, writes error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads, a.writes
}

func (a *ailing) Open() controlplane.Backend { return &ailingBackend{a.Storage.Open(), a} }

type ailingBackend struct {
	controlplane.Backend
	*ailing
}

// Done implements controlplane.Ending.
func (b *ailingBackend) Done() <-chan struct{} { return b.done }

// Err implements controlplane.Ending.
func (b *ailingBackend) Err() error { return errors.New("the disk is gone") }

// Client implements controlplane.Backend.
func (b *ailingBackend) Client() (*clientv3.Client, error) {
	c, err := b.Backend.Client()
	if err == nil {
		c.KV = ailingKV{c.KV, b.ailing}
	}
	return c, err
}

type ailingKV struct {
	clientv3.KV
	*ailing
}

// Get implements clientv3.KV.
func (kv ailingKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err, _ := kv.errs(); err != nil {
		return nil, err
	}
	return kv.KV.Get(ctx, key, opts...)
}

// Put implements clientv3.KV.
func (kv ailingKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if _, err := kv.errs(); err != nil {
		return nil, err
	}
	return kv.KV.Put(ctx, key, value, opts...)
}

func newAiling() *ailing {
	return &ailing{Storage: memory.Store{}, done: make(chan struct{})}
}

// TestStorageEnds: a server whose storage has ended by itself ends, and says why.
// While a request that is under way holds it, /livez says that only a restart helps.
func TestStorageEnds(t *testing.T) {
	t.Parallel()
	storage := newAiling()
	begun, release := make(chan struct{}), make(chan struct{})
	hold := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/v1/namespaces/held" {
				close(begun)
				<-release
			}
			next.ServeHTTP(w, r)
		})
	}
	s, err := controlplane.New(t.Name()).Storage(storage).With(core.Namespaces{}, middleware.AfterAuthentication("hold", hold)).Build()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	<-s.Ready()
	c := client(t, s.ClientConfig())
	if code, body := probe(t, c, "/livez"); code != http.StatusOK {
		t.Errorf("/livez is %d: %s", code, body)
	}
	var held sync.WaitGroup
	held.Go(func() { probe(t, c, "/api/v1/namespaces/held") })
	<-begun
	close(storage.done)
	var code int
	var body []byte
	for end := time.Now().Add(time.Minute); code != http.StatusInternalServerError && time.Now().Before(end); {
		code, body = probe(t, c, "/livez")
	}
	if code != http.StatusInternalServerError || !strings.Contains(string(body), "[-]storage-memory failed") {
		t.Errorf("/livez is %d with a storage that has ended, want 500 and the storage:\n%s", code, body)
	}
	close(release)
	held.Wait()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "storage: the disk is gone") {
			t.Errorf("the server ended with %v, want what its storage said", err)
		}
	case <-time.After(time.Minute):
		t.Error("the server goes on without a storage")
	}
}

// TestStorageHealth: /readyz and /healthz name the storage and what is wrong with it,
// and are well again with it. /livez is well: a restart helps nobody.
func TestStorageHealth(t *testing.T) {
	t.Parallel()
	storage := newAiling()
	s, err := controlplane.New(t.Name()).Storage(storage).With(core.Namespaces{}).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	c := client(t, s.ClientConfig())
	expect := func(when string, code int, want ...string) {
		t.Helper()
		var body []byte
		var got int
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			lacks := func(w string) bool { return !strings.Contains(string(body), w) }
			if got, body = probe(t, c, "/readyz"); got == code && !slices.ContainsFunc(want, lacks) {
				break // an answer holds for a second
			}
		}
		healthz, _ := probe(t, c, "/healthz")
		livez, _ := probe(t, c, "/livez")
		if got != code || healthz != code || livez != http.StatusOK {
			t.Errorf("%s: /readyz is %d, /healthz %d, /livez %d, want %d, %d, 200:\n%s", when, got, healthz, livez, code, code, body)
		}
		for _, w := range want {
			if !strings.Contains(string(body), w) {
				t.Errorf("%s: /readyz lacks %q:\n%s", when, w, body)
			}
		}
	}
	expect("well", http.StatusOK)
	storage.set(context.DeadlineExceeded, nil)
	expect("slow", http.StatusInternalServerError, "[-]storage-memory-speed failed")
	storage.set(errors.New("it is odd"), nil)
	expect("broken", http.StatusInternalServerError, "[-]storage-memory-answer failed", "[+]storage-memory-speed ok")
	storage.set(nil, nil)
	expect("well again", http.StatusOK)
}

func probe(t *testing.T, c *kubernetes.Clientset, path string) (code int, body []byte) {
	t.Helper()
	r := c.RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&code)
	body, _ = r.Raw()
	return code, body
}
