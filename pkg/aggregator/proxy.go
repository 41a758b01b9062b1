package aggregator

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/vouched"
)

// newProxy makes the handler of requests with a hop to the server.
func (s *server) newProxy() http.Handler {
	if s.direct != nil {
		return http.HandlerFunc(s.call)
	}
	if s.wrong != nil {
		return nil // never available
	}
	plain := &httputil.ReverseProxy{
		Transport: s.target, Rewrite: rewrite, ModifyResponse: s.admitResponse, ErrorHandler: s.failed,
		BufferPool: &s.connections.buffers, ErrorLog: log.New(quiet{}, "", 0),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpstream.IsUpgradeRequest(r) {
			s.upgraded(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
}

// rewrite makes a client's request one of this server.
func rewrite(r *httputil.ProxyRequest) {
	h := hopOf(r.In.Context())
	r.Out.URL, r.Out.Host = h.to, ""
	if before := r.In.Header["X-Forwarded-For"]; before != nil {
		r.Out.Header["X-Forwarded-For"] = before
	}
	r.SetXForwarded()
	h.identify(r.Out)
}

// identify has a request tell who asks, and nobody else, and who hands it on.
func (h *hop) identify(r *http.Request) {
	r.Header = anonymous(r.Header)
	r.Header.Add("Via", h.via)
	transport.SetAuthProxyHeaders(r, h.as.GetName(), h.as.GetUID(), h.as.GetGroups(), h.as.GetExtra())
	if h.auditID != "" {
		r.Header.Set(auditinternal.HeaderAuditID, h.auditID)
	}
}

// upgraded hands a request on that becomes a stream.
func (s *server) upgraded(w http.ResponseWriter, r *http.Request) {
	h := hopOf(r.Context())
	out := r.Clone(r.Context())
	h.identify(out)
	out.Header.Set("Connection", "Upgrade") // it could name the user's headers, to have them dropped
	handler := proxy.NewUpgradeAwareHandler(h.to, s.ways.Load().upgrade, false, true, responder{s})
	handler.UseLocationHost = true
	handler.ServeHTTP(w, out)
}

type responder struct{ *server }

// Error implements proxy.ErrorResponder.
func (r responder) Error(w http.ResponseWriter, req *http.Request, err error) { r.failed(w, req, err) }

// call hands a request to a handler in this process. It has none of the values that this
// server keeps in the context: they would be taken for the handler's own.
func (s *server) call(w http.ResponseWriter, r *http.Request) {
	h := hopOf(r.Context())
	ctx, end := context.WithCancel(context.Background())
	defer end()
	defer context.AfterFunc(r.Context(), end)()
	vouch := vouched.HandedOn
	if h.lasts { // it has no deadline here: the other server may have one for it
		vouch = vouched.With
	}
	out := r.WithContext(vouch(ctx, h.as))
	h.identify(out) // with headers of its own
	utilnet.AppendForwardedForHeader(out)
	out.URL, out.Host, out.RequestURI, out.TLS = h.to, h.to.Host, h.to.RequestURI(), nil
	w.Header().Del(auditinternal.HeaderAuditID) // the handler's is the same
	s.given.Handler.ServeHTTP(w, out)
}

// admitResponse takes from an answer what this server says itself, and refuses to send the
// client elsewhere, where it would come with its own credentials.
func (s *server) admitResponse(r *http.Response) error {
	for _, name := range []string{
		auditinternal.HeaderAuditID, "Set-Cookie", "Strict-Transport-Security",
		"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Headers",
		"Access-Control-Allow-Methods", "Access-Control-Expose-Headers", "Access-Control-Max-Age",
	} {
		r.Header.Del(name)
	}
	to := r.Header.Get("Location")
	if r.StatusCode < 300 || r.StatusCode > 399 || to == "" {
		return nil
	}
	if u, err := url.Parse(to); err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" {
		return errRedirect
	}
	return nil
}

var errRedirect = errors.New("the server behind redirects to another one, which is not allowed")

// failed answers a request that the server did not.
func (s *server) failed(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	var status apierrors.APIStatus
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &status):
	case errors.As(err, &tooLarge):
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	case errors.Is(err, errRedirect):
		err = badGateway(err.Error())
	case ctx.Err() != nil && !errors.Is(err, errLost):
		hopOf(ctx).failed = true
		err = apierrors.NewTimeoutError(fmt.Sprintf("server %s did not answer", s), 0)
	default:
		hopOf(ctx).failed = true
		klog.FromContext(ctx).Error(err, "A server behind this one did not answer", "server", s.String())
		signal.Wake(s.look)
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("server %s did not answer", s))
	}
	answerError(w, r, err)
}

// buffers are what bodies are copied with.
type buffers struct{ sync.Pool }

type buffer = [32 << 10]byte

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if free, ok := b.Pool.Get().(*buffer); ok {
		return free[:]
	}
	return new(buffer)[:]
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(used []byte) { b.Pool.Put((*buffer)(used)) }

// quiet drops what the proxy logs: that clients went away while they were answered.
type quiet struct{}

func (quiet) Write(b []byte) (int, error) { return len(b), nil }
