package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// bind opens the listener, first of all: a taken port is the most common
// mistake and is known at once.
func (r *run) bind(ctx context.Context) (net.Listener, error) {
	s := r.server
	if s.listen == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen at %s: the port is in use by another process: "+
			"stop it or choose another port (0 picks a free one)", s.listen)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", s.listen, err)
	}
	r.later(func(context.Context) error {
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

// serve answers HTTPS at the listener, if there is one.
func (r *run) serve(ctx context.Context, plan *Plan, listener net.Listener, h http.Handler) error {
	if listener == nil {
		return nil
	}
	from := plan.identity[0]
	identity, err := from.value(ctx, listener.Addr())
	if err != nil {
		return fmt.Errorf("part %q: %s: %w", from.part, from.name, err)
	}
	info := &genericapiserver.SecureServingInfo{
		Listener: listener, Cert: identity.Serving, ClientCA: identity.ClientCA,
	}
	end := make(chan struct{})
	stopped, _, err := info.Serve(h, connectionsTimeout, end)
	if err != nil {
		return fmt.Errorf("serve at %s: %w", listener.Addr(), err)
	}
	r.later(func(context.Context) error {
		close(end)
		<-stopped
		return nil
	})
	return nil
}

// connectionsTimeout bounds how long a stopping server waits for its
// connections to go idle; by then requests are drained and watches have ended.
const connectionsTimeout = 5 * time.Second

// externalAddress is what clients are told to connect to.
func externalAddress(l net.Listener) string {
	if l == nil {
		return "localhost:443"
	}
	return l.Addr().String()
}

// newToken is a secret that identifies the loopback client; 130 bits.
func newToken() string { return rand.Text() }

// loopbackConfig reaches a plane in-process as a privileged user.
func loopbackConfig(name string, door *loopback.Transport, token string) *rest.Config {
	return &rest.Config{
		Host: "http://loopback", Transport: door, BearerToken: token,
		UserAgent: "sailplane/" + name, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	}
}
