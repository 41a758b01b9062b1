package streamed

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	client "k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

const (
	// size is how many bytes each console says.
	size = 64 << 20
	// piece is how many it says at a time.
	piece = 32 << 10
	// patience is how long a server may take to start.
	patience = 2 * time.Minute
)

// say writes what a console says.
func say(w io.Writer) error {
	p := make([]byte, piece)
	for range size / piece {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkExec reads what consoles say, all over TLS.
func BenchmarkExec(b *testing.B) {
	alone, plane := serveAlone(b), servePlane(b)
	const console = "/api/v1/namespaces/default/pods/web/exec?stdout=1&command=say"
	for _, c := range []struct {
		name, path string
		config     *rest.Config
		executor   func(*rest.Config, string) (client.Executor, error)
	}{
		{"cri-streaming/SPDY", "/", alone, spdy},
		{"plane/SPDY", console, plane, spdy},
		{"cri-streaming/WebSocket", "/", serveTranslated(b, alone), websocket},
		{"plane/WebSocket", console, plane, websocket},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				e, err := c.executor(c.config, c.config.Host+c.path)
				must(b, err)
				n := &counter{}
				must(b, e.StreamWithContext(b.Context(), client.StreamOptions{Stdout: n}))
				if n.bytes != size {
					b.Fatalf("the console said %d bytes, want %d", n.bytes, size)
				}
			}
		})
	}
}

func spdy(c *rest.Config, address string) (client.Executor, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return client.NewSPDYExecutor(c, http.MethodPost, u)
}

func websocket(c *rest.Config, address string) (client.Executor, error) {
	return client.NewWebSocketExecutor(c, http.MethodGet, address)
}

// counter counts what it is told.
type counter struct{ bytes int }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	return len(p), nil
}

// executor says what a console says, in cri-streaming alone.
type executor struct{}

//nolint:revive // upstream's arguments
func (executor) ExecInContainer(_ context.Context, _, _, _ string, _ []string,
	_ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	return say(out)
}

// serveAlone serves with nothing but cri-streaming.
func serveAlone(b *testing.B) *rest.Config {
	b.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotecommand.ServeExec(w, r, executor{}, "", "", "", nil, &remotecommand.Options{Stdout: true}, time.Hour, time.Minute,
			remotecommand.SupportedStreamingProtocols)
	}))
	s.StartTLS()
	b.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: encoded(s.Certificate())}}
}

// serveTranslated serves it to WebSockets, which cri-streaming does not speak in the version of clients
// of now: kube-apiserver translates them to SPDY.
func serveTranslated(b *testing.B, alone *rest.Config) *rest.Config {
	b.Helper()
	location, err := url.Parse(alone.Host)
	must(b, err)
	transport, err := rest.TransportFor(alone)
	must(b, err)
	s := httptest.NewUnstartedServer(proxy.NewStreamTranslatorHandler(location, transport, 0, proxy.Options{Stdout: true}))
	s.StartTLS()
	b.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: encoded(s.Certificate())}}
}

func encoded(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// servePlane serves a pod with a console.
func servePlane(b *testing.B) *rest.Config {
	b.Helper()
	kubeconfig := b.TempDir() + "/kubeconfig"
	server, err := controlplane.New("streamed").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: kubeconfig}, core.Namespaces{},
		kube.Pods(apis.Exec("exec", func(_ context.Context, _ *corev1.Pod, _ *corev1.PodExecOptions, s apis.Streams) error {
			return say(s.Stdout)
		})),
	).Build()
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("run: %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		b.Fatalf("run: %v", err)
	case <-time.After(patience):
		b.Fatal("the server is not ready")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(b, err)
	pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("default")
	_, err = pods.Create(b.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	must(b, err)
	return config
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(fmt.Errorf("exec: %w", err))
	}
}
