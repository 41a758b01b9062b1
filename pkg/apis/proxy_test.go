package apis_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// mirror answers with what it got, and echoes over a WebSocket.
func mirror(t *testing.T) *url.URL {
	t.Helper()
	echo := websocket.Server{Handler: func(ws *websocket.Conn) {
		fmt.Fprint(ws, ws.Request().URL.String(), " ", ws.Request().Header["Sec-Websocket-Protocol"], ws.Request().Header["Authorization"])
		_, _ = io.Copy(ws, ws)
	}}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echo.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL, r.Host, body)
		for _, name := range []string{"Authorization", "X-Remote-User", "X-Remote-Extra-Scopes", "Impersonate-User", "Connection", "Cookie", "X-Own"} {
			fmt.Fprintf(w, " %s=%s", name, r.Header.Get(name))
		}
	}))
	t.Cleanup(backend.Close)
	u, err := url.Parse(backend.URL + "/base")
	must(t, err)
	return u
}

// TestProxy: a server gets every method and path, and no credentials.
func TestProxy(t *testing.T) {
	t.Parallel()
	to := mirror(t)
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Proxy("web", func(_ context.Context, a *fruit.Apple) (*url.URL, http.RoundTripper, error) {
			if a.Spec.Variety != "cox" {
				return nil, nil, nil
			}
			return to, nil, nil
		}))).plant()
	const empty = " Authorization= X-Remote-User= X-Remote-Extra-Scopes= Impersonate-User= Connection= Cookie=c=d X-Own=1"
	credentials := []string{
		"Authorization", "Bearer x", "X-Remote-User", "root", "X-Remote-Extra-Scopes", "all", "Impersonate-User", "root",
		"Connection", "x-hop", "Cookie", "c=d", "X-Own", "1",
	}
	for path, want := range map[string]string{
		"/web/a/b?q=1":                   "/base/a/b?q=1",
		"/web/":                          "/base/",
		"/web":                           "/base/",
		"/web/a/":                        "/base/a/",
		"/web/%2e%2e/%2e%2e/secret":      "/base/secret",
		"/web/a/%2e%2e/%2e%2e/%2e%2e/b/": "/base/b/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			got := s.call(200, method, treePath+path, "body", credentials...)
			if want := fmt.Sprint(method, " ", want, " ", to.Host, " body", empty); got.body != want {
				t.Errorf("%s %s: the server got %q, want %q", method, path, got.body, want)
			}
		}
	}
	s.call(404, http.MethodGet, "v1/namespaces/garden/apples/other/web/", "")

	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(s.url, "http")+treePath+"/web/live?x=y", s.url)
	must(t, err)
	config.Protocol = []string{"base64url.bearer.authorization.k8s.io.c2VjcmV0", "own"}
	config.Header.Set("Authorization", "Bearer x")
	ws, err := websocket.DialConfig(config)
	must(t, err)
	defer ws.Close()
	fmt.Fprint(ws, "!")
	const echoed = "/base/live?x=y [own] []!"
	got := make([]byte, len(echoed))
	if _, err := io.ReadFull(ws, got); string(got) != echoed {
		t.Errorf("over a WebSocket the server got %q, want %q: %v", got, echoed, err)
	}
}

// TestHandle: a handler of the program sees its own paths, and who asks.
func TestHandle(t *testing.T) {
	t.Parallel()
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Handle("web", func(_ context.Context, a *fruit.Apple) (http.Handler, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				who, _ := request.UserFrom(r.Context())
				fmt.Fprint(w, a.Spec.Variety, " ", who.GetName(), " ", r.RequestURI, r.Header["Authorization"])
			}), nil
		}))).plant()
	for path, want := range map[string]string{
		"/web":            "cox gardener /[]",
		"/web/a/../b?c=d": "cox gardener /b?c=d[]",
	} {
		if got := s.call(200, http.MethodGet, treePath+path, "", "Authorization", "Bearer x"); got.body != want {
			t.Errorf("%s: the handler got %q, want %q", path, got.body, want)
		}
	}
}
