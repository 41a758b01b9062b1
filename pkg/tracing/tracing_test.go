package tracing_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/tracing"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// collecting is a collector that keeps the names of spans by trace.
type collecting struct {
	collector.UnimplementedTraceServiceServer
	got chan span
}

type span struct{ service, trace, name string }

func (c *collecting) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, rs := range r.ResourceSpans {
		service := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.got <- span{service, string(s.TraceId), s.Name}
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collect runs a collector. What it got is complete when it ended: spans does that.
func collect(t *testing.T) (endpoint string, spans func() []span) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collecting{got: make(chan span, 10_000)}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, c)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	return l.Addr().String(), func() []span {
		s.GracefulStop()
		close(c.got)
		var all []span
		for s := range c.got {
			all = append(all, s)
		}
		return all
	}
}

// run runs a server until the returned function is called.
func run(t *testing.T, parts ...controlplane.Part) (*controlplane.Server, func()) {
	t.Helper()
	s, err := controlplane.New("test").Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		cancel()
		t.Fatalf("Run: %v", err)
	}
	return s, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// sampled says that a trace is recorded, as W3C Trace Context has it.
const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

type says struct {
	header string
	next   http.RoundTripper
}

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("traceparent", s.header)
	return s.next.RoundTrip(r)
}

func create(t *testing.T, config *rest.Config, name string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// arrives tries until what a server did was traced: when it stops, it gives up
// spans that a collector on a busy machine does not take within 2 s.
func arrives(t *testing.T, traced func() (missing string)) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		missing := traced()
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(missing)
		}
		t.Logf("once more: %s", missing)
	}
}

// TestCallersTrace: a request is traced, down to the storage, when its caller
// says so, and not otherwise. The last spans arrive when the server stops.
func TestCallersTrace(t *testing.T) {
	t.Parallel()
	arrives(t, func() string { return callersTrace(t) })
}

func callersTrace(t *testing.T) (missing string) {
	t.Helper()
	endpoint, spans := collect(t)
	s, stop := run(t, core.Namespaces{}, core.ConfigMaps{}, tracing.OTLP{Endpoint: endpoint, Service: "shop"})
	create(t, s.ClientConfig(), "untraced")
	traced := s.ClientConfig()
	traced.Wrap(func(next http.RoundTripper) http.RoundTripper { return says{sampled, next} })
	create(t, traced, "traced")
	stop()
	names := map[string]int{}
	for _, s := range spans() {
		if s.service != "shop" {
			t.Errorf("span %q is of service %q, want shop", s.name, s.service)
		}
		if want := "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c"; s.trace != want {
			t.Errorf("span %q is in trace %x, want that of the caller", s.name, s.trace)
		}
		names[s.name]++
	}
	request, stored := 0, 0
	for name, n := range names {
		if strings.Contains(name, "configmaps") {
			request += n
		}
		if strings.Contains(name, "etcd3") || strings.Contains(name, "Create") {
			stored += n
		}
	}
	if request == 0 || stored == 0 {
		return fmt.Sprintf("spans %v, want those of one request and its storage", names)
	}
	return ""
}

// TestSample traces every request, whoever asks.
func TestSample(t *testing.T) {
	t.Parallel()
	arrives(t, func() string {
		endpoint, spans := collect(t)
		s, stop := run(t, core.Namespaces{}, core.ConfigMaps{}, tracing.OTLP{Endpoint: endpoint, SamplesPerMillion: 1_000_000})
		create(t, s.ClientConfig(), "one")
		stop()
		if len(spans()) == 0 {
			return "no span arrived"
		}
		return ""
	})
}

// TestNoCollector: spans are no reason not to serve, nor not to stop.
func TestNoCollector(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts and never answers
	s, stop := run(t, core.Namespaces{}, core.ConfigMaps{},
		tracing.OTLP{Endpoint: l.Addr().String(), SamplesPerMillion: 1_000_000})
	create(t, s.ClientConfig(), "one")
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the server does not stop")
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		parts  []controlplane.Part
		want   string
	}{
		"rate":     {"more than all", []controlplane.Part{tracing.OTLP{SamplesPerMillion: 1_000_001}}, "samplingRatePerMillion"},
		"negative": {"less than none", []controlplane.Part{tracing.OTLP{SamplesPerMillion: -1}}, "samplingRatePerMillion"},
		"endpoint": {"OTLP over HTTP is another protocol", []controlplane.Part{tracing.OTLP{Endpoint: "http://localhost:4318"}}, "endpoint"},
		"two":      {"each span would be there twice", []controlplane.Part{tracing.OTLP{}, tracing.OTLP{}}, "already provides one"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := controlplane.New("test").Storage(memory.Store{}).With(tc.parts...).Build()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}
