package stream

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// MostForwards is how many connections one request may forward at a time.
const MostForwards = 128

// Ports is an http.Handler that forwards connections to a function.
type Ports struct {
	// Name and UID of the object, which errors name.
	Name, UID string
	// Wanted are the ports of a WebSocket that is no tunnel; at most MostForwards.
	Wanted []int32
	// Forward serves one connection to a port.
	Forward func(ctx context.Context, port uint16, conn io.ReadWriteCloser) error
}

// ServeHTTP implements http.Handler. The request comes from [tied.Handler].
func (p *Ports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		p.serve(w, r)
		return
	}
	j := join(r.Context(), http.HandlerFunc(p.serve))
	defer j.stop()
	translator.NewTunnelingHandler(proxy.NewUpgradeAwareHandler(j.location, j.transport, false, true, refused{})).ServeHTTP(w, r)
}

// serve speaks SPDY, or the protocol of a WebSocket that is no tunnel.
func (p *Ports) serve(w http.ResponseWriter, r *http.Request) {
	f := &forwarder{ctx: r.Context(), forward: p.Forward, places: semaphore.NewWeighted(MostForwards)}
	portforward.ServePortForward(w, r, f, p.Name, p.UID, &portforward.V4Options{Ports: p.Wanted}, idle, creation,
		portforward.SupportedProtocols)
}

// refused answers when the connection in memory fails.
type refused struct{}

// Error implements proxy.ErrorResponder.
func (refused) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// forwarder is what portforward calls, with a context that never ends.
type forwarder struct {
	ctx     context.Context //nolint:containedctx // that of the request
	forward func(ctx context.Context, port uint16, conn io.ReadWriteCloser) error
	places  *semaphore.Weighted
}

var _ portforward.PortForwarder = &forwarder{}

// PortForward implements portforward.PortForwarder.
func (f *forwarder) PortForward(_ context.Context, _, _ string, port int32, conn io.ReadWriteCloser) (err error) {
	if !f.places.TryAcquire(1) {
		return fmt.Errorf("%d connections are forwarded already: close one of them first", MostForwards)
	}
	defer f.places.Release(1)
	ctx, end := context.WithCancel(f.ctx)
	defer end()
	defer recovered(ctx, &err)
	return f.forward(ctx, uint16(port), conn) //nolint:gosec // portforward has checked that it is a port
}
