package apis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// dialers are those that kubectl has: a tunnel in WebSockets first, SPDY where that fails.
func dialers(t *testing.T, address string) map[string]httpstream.Dialer {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	config := &restclient.Config{Host: u.Host}
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, config)
	must(t, err)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	must(t, err)
	return map[string]httpstream.Dialer{
		"WebSocket": tunnel, "SPDY": spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u),
	}
}

// TestPortForward: an HTTP client reaches a server through the function.
func TestPortForward(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "served ", r.URL.Path)
	}))
	t.Cleanup(backend.Close)
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.PortForward("ports", func(ctx context.Context, a *fruit.Apple, port uint16, conn io.ReadWriteCloser) error {
			if port != 80 || a.Spec.Variety != "cox" {
				return errors.New("nothing grows there")
			}
			to, err := (&net.Dialer{}).DialContext(ctx, "tcp", backend.Listener.Addr().String())
			if err != nil {
				return err
			}
			defer to.Close()
			context.AfterFunc(ctx, func() { to.Close() })
			go func() {
				_, _ = io.Copy(to, conn)
				_ = to.(*net.TCPConn).CloseWrite() // the server is gone when it fails
			}()
			_, err = io.Copy(conn, to)
			return err
		}))).plant()
	for kind, dialer := range dialers(t, s.url+treePath+"/ports") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{"0:80", "0:81"}, stop, ready, io.Discard, io.Discard)
			must(t, err)
			go func() { done <- f.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatalf("nothing is forwarded: %v", err)
			}
			ports, err := f.GetPorts()
			must(t, err)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for i := range 3 {
				resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/%d", ports[0].Local, i))
				must(t, err)
				body, err := io.ReadAll(resp.Body)
				must(t, err)
				resp.Body.Close()
				if want := fmt.Sprint("served /", i); string(body) != want {
					t.Errorf("the answer is %q, want %q", body, want)
				}
			}
			if resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[1].Local)); err == nil {
				resp.Body.Close()
				t.Errorf("a port without a function answers: %d", resp.StatusCode)
			}
			close(stop)
			// kubectl gives up when a port fails.
			if err := <-done; err != nil && !errors.Is(err, portforward.ErrLostConnectionToPod) {
				t.Error(err)
			}
		})
	}
	s.call(400, http.MethodPost, treePath+"/ports", "{}")
	s.call(400, http.MethodGet, treePath+"/ports?ports=0", "")
	s.call(400, http.MethodGet, treePath+"/ports?ports=1"+strings.Repeat("&ports=2", 128), "")
}
