package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/sailplane-dev/sailplane/pkg/internal/addresses"
)

// bind opens the listener, first of all: a taken port is the most common
// mistake and is known at once.
func (r *run) bind(ctx context.Context) (net.Listener, error) {
	s := r.server
	if s.built.listen == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.built.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen at %s: the port is in use by another process: "+
			"stop it or choose another port (0 picks a free one)", s.built.listen)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", s.built.listen, err)
	}
	r.onStop(func(context.Context) error {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("close the listener: %w", err)
		}
		return nil
	})
	s.mu.Lock()
	s.address = listener.Addr()
	s.mu.Unlock()
	return listener, nil
}

// identify makes the TLS configuration of the listener, if there is one.
func (r *run) identify(ctx context.Context, plan *ServerPlan, listener net.Listener) (*tls.Config, error) {
	if listener == nil {
		return nil, nil
	}
	var identity Identity
	for _, from := range plan.identity { // at most one
		var err error
		if identity, err = from.value(ctx, listener.Addr()); err != nil {
			return nil, from.failed(err)
		}
	}
	var byName []dynamiccertificates.SNICertKeyContentProvider
	for _, from := range plan.certificates {
		certificate, err := from.value(ctx)
		if err != nil {
			return nil, from.failed(err)
		}
		byName = append(byName, certificate)
	}
	for _, from := range plan.trusted {
		if first, ok := from.value.(runner); ok {
			if err := first.RunOnce(ctx); err != nil {
				return nil, from.failed(err)
			}
		}
	}
	identity = identity.trusting(plan.trusted)
	r.server.mu.Lock()
	r.server.authority, r.server.clients = identity.ServingCA, identity.ClientCA
	r.server.mu.Unlock()
	if identity.Serving == nil {
		identity.Serving = byName[0] // Build has seen that there is one
	}
	config, err := r.tlsConfig(identity, byName)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return config, nil
}

// runner is the part of dynamiccertificates.ControllerRunner that reads contents once.
type runner interface {
	RunOnce(ctx context.Context) error
}

// trusting returns the identity with further authorities of client certificates.
func (i Identity) trusting(more []named[dynamiccertificates.CAContentProvider]) Identity {
	var all []dynamiccertificates.CAContentProvider
	if i.ClientCA != nil {
		all = append(all, i.ClientCA)
	}
	for _, m := range more {
		all = append(all, m.value)
	}
	if len(all) > 0 {
		i.ClientCA = dynamiccertificates.NewUnionCAContentProvider(all...)
	}
	return i
}

// serve answers HTTPS at the listener, but for the connections of parts.
func (r *run) serve(listener net.Listener, server *http.Server, parts []named[TakeFunc]) {
	done := background(func() {
		limits := r.server.built.limits
		counted := r.server.addresses.Listen(listener, newTurns(limits.LargeRequests), limits.certificateBytes())
		listening, serve := net.Listener(coalescingListener{counted}), func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		if len(parts) > 0 {
			listening, serve = newSorter(listening, server.TLSConfig, parts, handshakeTime(server)), server.Serve
		}
		if err := serve(listening); !errors.Is(err, http.ErrServerClosed) {
			r.fail(fmt.Errorf("serve at %s: %w", listener.Addr(), err))
		}
	})
	r.onStop(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, connectionsTimeout)
		defer cancel()
		// Shutdown waits a second for every idle HTTP/2 connection. Requests are drained
		// by now, so it only gets the time to send the last bytes.
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // the listener's error is the only one; it is closed below
		}
		<-done
		return nil
	})
}

// handshakeTime is how long net/http gives a TLS handshake.
func handshakeTime(server *http.Server) time.Duration {
	if server.ReadHeaderTimeout > 0 {
		return min(server.ReadHeaderTimeout, server.WriteTimeout)
	}
	return server.WriteTimeout
}

// connectionsTimeout is how long connections may take to send what is left
// when requests are drained and watches have ended.
const connectionsTimeout = 100 * time.Millisecond

// tlsConfig serves the identity's certificate, or the one for the name that a
// client asks for, and asks clients for theirs. It follows the certificates when
// they change: later handshakes get the new ones, and open connections stay.
func (r *run) tlsConfig(identity Identity, byName []dynamiccertificates.SNICertKeyContentProvider) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		CipherSuites: cipherSuites(),
		// In the configuration that the controller copies, and in resumed sessions too.
		VerifyConnection: r.server.built.limits.verifyConnection,
		// Without it, each kilobyte of what is large is a system call.
		DynamicRecordSizingDisabled: true,
	}
	if identity.ClientCA != nil {
		// Certificates are asked for, not demanded: authenticators verify them,
		// and there are other ways to log in.
		config.ClientAuth = tls.RequestClientCert
	}
	controller := dynamiccertificates.NewDynamicServingCertificateController(config, identity.ClientCA, identity.Serving, byName, nil)
	if identity.ClientCA != nil {
		identity.ClientCA.AddListener(controller)
	}
	identity.Serving.AddListener(controller)
	for _, certificate := range byName {
		certificate.AddListener(controller)
	}
	if err := controller.RunOnce(); err != nil {
		return nil, err
	}
	end := make(chan struct{})
	done := background(func() { controller.Run(1, end) })
	r.onStop(func(context.Context) error {
		close(end)
		<-done
		return nil
	})
	served := config.Clone() // the controller copies the other one, and net/http writes to its own
	served.GetConfigForClient = addresses.Configure(controller.GetConfigForClient)
	return served, nil
}

// cipherSuites are those of TLS 1.2 that RFC 9325, section 4.2, recommends: forward
// secrecy and authenticated encryption. Those of TLS 1.3 are all such.
func cipherSuites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}

// httpServer has the limits of kube-apiserver.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/secure_serving.go#L158
func httpServer(h http.Handler, config *tls.Config, limits Limits) *http.Server {
	const bodyPercentile99 = 256 << 10 // bytes; few requests are larger
	headers := limits.HeaderBytes
	if headers == Unlimited {
		headers = math.MaxInt32
	}
	headerTime := max(limits.HeaderTime, 0) // 0 is no limit here
	return &http.Server{
		Handler: withStack(chunkedLast(bodiesInTime(h, limits.BodyTime))), TLSConfig: config,
		MaxHeaderBytes:    headers,
		ReadHeaderTimeout: headerTime, // and of the TLS handshake
		IdleTimeout:       90 * time.Second,
		WriteTimeout:      writeTimeout, // but for watches: withPace
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 3 * headerTime, PingTimeout: headerTime, // 0 is no ping
			MaxConcurrentStreams:          100, // per connection, against rapid reset (CVE-2023-44487)
			MaxReceiveBufferPerStream:     bodyPercentile99,
			MaxReadFrameSize:              bodyPercentile99,
			MaxReceiveBufferPerConnection: 4<<20 - 1,
			WriteByteTimeout:              max(limits.Answers.Stall, 0),
		},
		// Failed handshakes are the client's business: scanners make them by the thousand.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// chunkedLast ends an HTTP/1.1 connection after a request with a chunked body. A
// proxy may have cut a request that has a length as well at another place, and what
// follows may be its body: RFC 9112, section 6.1, has servers close the connection
// after it. Go's server does not, and a handler no longer sees whether there was a
// length.
func chunkedLast(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
