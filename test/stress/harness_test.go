package stress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// limit is how long anything may take before it counts as hanging.
const limit = 2 * time.Minute

// logs holds what the servers and the libraries below them log.
var logs = &logBuffer{}

func TestMain(m *testing.M) {
	klog.SetLoggerWithOptions(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))), klog.ContextualLogger(true))
	log.SetOutput(logs)
	code := m.Run()
	if logs.panicked() {
		fmt.Fprintln(os.Stderr, "a server panicked:")
		code = 1
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, logs.tail())
	}
	os.Exit(code)
}

type logBuffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *logBuffer) panicked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.bytes.String()
	return strings.Contains(s, "Observed a panic") || strings.Contains(s, "panic serving") || strings.Contains(s, "panic'd")
}

func (b *logBuffer) capacity() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Cap()
}

func (b *logBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.bytes.String()
	return s[max(0, len(s)-20_000):]
}

// store is a storage that the tests run on.
type store struct {
	// at describes the storage below a directory.
	at func(dir string) controlplane.Storage
	// persistent says that a second server finds what the first one wrote.
	persistent bool
	// files are what the storage may leave in its directory, as patterns.
	files []string
}

// stores are all storages that need nothing outside the process.
func stores() map[string]store {
	all := map[string]store{
		"memory": {at: func(string) controlplane.Storage { return memory.Store{} }},
		"sqlite": {
			at:         func(dir string) controlplane.Storage { return sqlite.File{Path: filepath.Join(dir, "state.db")} },
			persistent: true, files: []string{"state.db", "state.db.lock"},
		},
	}
	addEtcd(all)
	return all
}

// build makes a server of every part on a storage.
func build(tb testing.TB, name string, d controlplane.Storage, more ...controlplane.Part) *controlplane.Server {
	tb.Helper()
	s, err := controlplane.New(name).Listen("127.0.0.1:0").Storage(d).With(
		authn.Admin{}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
		crd.Definitions{}, aggregator.APIServices{}, controlplane.Parts(more),
	).Build()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// life is one run of a server.
type life struct {
	tb     testing.TB
	server *controlplane.Server
	cancel context.CancelFunc
	ended  chan error
}

// run starts a server and returns at once.
func run(tb testing.TB, s *controlplane.Server) *life {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{tb: tb, server: s, cancel: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- s.Run(ctx) }()
	return l
}

// serve starts a server and returns when it is ready.
func serve(tb testing.TB, s *controlplane.Server) *life {
	tb.Helper()
	l := run(tb, s)
	if err := l.ready(); err != nil {
		tb.Fatal(err)
	}
	return l
}

func (l *life) ready() error {
	select {
	case <-l.server.Ready():
		return nil
	case err := <-l.ended:
		l.ended <- err
		return fmt.Errorf("run: %w", errors.Join(err, errors.New("it ended before it was ready")))
	case <-time.After(limit):
		return fmt.Errorf("not ready after %v\n%s", limit, stacks())
	}
}

// stop stops the server and returns how long that took.
func (l *life) stop() (time.Duration, error) {
	begun := time.Now()
	l.cancel()
	select {
	case err := <-l.ended:
		l.ended <- err
		return time.Since(begun), err
	case <-time.After(limit):
		return limit, fmt.Errorf("not stopped after %v\n%s", limit, stacks())
	}
}

// mustStop stops the server, which must end without an error.
func (l *life) mustStop() time.Duration {
	l.tb.Helper()
	d, err := l.stop()
	if err != nil {
		l.tb.Errorf("stop: %v", err)
	}
	return d
}

func (l *life) configMaps(tb testing.TB) v1.ConfigMapInterface {
	tb.Helper()
	c, err := kubernetes.NewForConfig(l.server.ClientConfig())
	if err != nil {
		tb.Fatal(err)
	}
	return c.CoreV1().ConfigMaps("default")
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
}

// onlyOwnFiles checks that a storage left nothing else in its directory.
func (s store) onlyOwnFiles(tb testing.TB, dir string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		known := false
		for _, pattern := range s.files {
			if ok, err := filepath.Match(pattern, e.Name()); ok && err == nil {
				known = true
			}
		}
		if !known {
			tb.Errorf("%s was left in the directory of the storage; known are %v", e.Name(), s.files)
		}
	}
}

func stacks() string {
	b := make([]byte, 8<<20)
	return string(b[:runtime.Stack(b, true)])
}

// heap is what is allocated, but for the logs: their buffer doubles now and then.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc - uint64(logs.capacity())
}
