package apis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// ListenOptions say what to hear of a tree.
type ListenOptions struct {
	metav1.TypeMeta `json:",inline"`

	Follow bool     `json:"follow,omitempty"`
	Times  *int64   `json:"times,omitempty"`
	Birds  []string `json:"bird,omitempty"`
}

func (o *ListenOptions) DeepCopyObject() runtime.Object { c := *o; return &c }

// OpenAPIModelName is its name in OpenAPI.
func (ListenOptions) OpenAPIModelName() string { return "com.example.fruit.v1.ListenOptions" }

const treePath = "v1/namespaces/garden/apples/tree"

// plant makes an apple.
func (s *server) plant() *server {
	s.t.Helper()
	s.call(201, http.MethodPost, "v1/namespaces/garden/apples", `{"metadata":{"name":"tree"},"spec":{"variety":"cox"}}`)
	return s
}

// TestStream: a GET of the sub-resource reads what the function returns, with typed options.
func TestStream(t *testing.T) {
	t.Parallel()
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Stream("song", func(_ context.Context, a *fruit.Apple, o *ListenOptions) (io.ReadCloser, error) {
			if o.Times == nil {
				return nil, apierrors.NewBadRequest("how often?")
			}
			return io.NopCloser(strings.NewReader(fmt.Sprintf("%s %t %d %s", a.Spec.Variety, o.Follow, *o.Times, o.Birds))), nil
		}))).plant()
	got := s.call(200, http.MethodGet, treePath+"/song?follow=1&times=3&bird=tit&bird=robin&other=x", "")
	if want := "cox true 3 [tit robin]"; got.body != want {
		t.Errorf("the stream is %q, want %q", got.body, want)
	}
	s.call(400, http.MethodGet, treePath+"/song", "").has("an error before the first byte", "message", `"how often?"`)
	s.call(400, http.MethodGet, treePath+"/song?times=often", "")
	s.call(404, http.MethodGet, "v1/namespaces/garden/apples/other/song?times=1", "")
	s.call(405, http.MethodPost, treePath+"/song?times=1", "{}")

	ws, err := websocket.Dial("ws"+strings.TrimPrefix(s.url, "http")+treePath+"/song?times=1", "binary.k8s.io", s.url)
	must(t, err)
	defer ws.Close()
	heard, err := io.ReadAll(ws)
	must(t, err)
	if want := "cox false 1 []"; string(heard) != want {
		t.Errorf("over a WebSocket the stream is %q, want %q", heard, want)
	}
}

// TestStreamFollows: what is written arrives before the end, and the function learns that
// the client is gone.
func TestStreamFollows(t *testing.T) {
	t.Parallel()
	ended, closed := make(chan struct{}, 1), make(chan struct{}, 1)
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Stream("song", func(ctx context.Context, _ *fruit.Apple, _ *ListenOptions) (io.ReadCloser, error) {
			context.AfterFunc(ctx, func() { ended <- struct{}{} })
			r, w := io.Pipe()
			go func() {
				_, err := io.WriteString(w, "tweet\n")
				for err == nil { // until the reader is closed
					_, err = io.WriteString(w, strings.Repeat("-", 1<<10))
				}
				closed <- struct{}{}
			}()
			return r, nil
		}))).plant()
	for name, dial := range map[string]func(context.Context) io.ReadCloser{
		"HTTP": func(ctx context.Context) io.ReadCloser {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+treePath+"/song", nil)
			must(t, err)
			resp, err := http.DefaultClient.Do(req)
			must(t, err)
			return resp.Body
		},
		"WebSocket": func(context.Context) io.ReadCloser {
			ws, err := websocket.Dial("ws"+strings.TrimPrefix(s.url, "http")+treePath+"/song", "binary.k8s.io", s.url)
			must(t, err)
			return ws
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			body := dial(ctx)
			if line, err := bufio.NewReader(body).ReadString('\n'); line != "tweet\n" {
				t.Errorf("the first line is %q: %v", line, err)
			}
			cancel()
			must(t, body.Close())
			wait(t, "the context's end", ended)
			wait(t, "the reader's end", closed)
		})
	}
}

// TestStreamQuiet: that the client of a stream that says nothing is gone is known too, and a
// handshake that fails is refused.
func TestStreamQuiet(t *testing.T) {
	t.Parallel()
	opened, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Stream("song", func(ctx context.Context, _ *fruit.Apple, _ *ListenOptions) (io.ReadCloser, error) {
			context.AfterFunc(ctx, func() { ended <- struct{}{} })
			opened <- struct{}{}
			r, _ := io.Pipe()
			return r, nil
		}))).plant()
	ws, err := websocket.Dial("ws"+strings.TrimPrefix(s.url, "http")+treePath+"/song", "base64.binary.k8s.io", s.url)
	must(t, err)
	wait(t, "the stream", opened)
	must(t, ws.Close())
	wait(t, "the context's end", ended)

	handshake := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	s.call(400, http.MethodGet, treePath+"/song", "", append(handshake, "Sec-WebSocket-Protocol", "v5.channel.k8s.io")...)
	s.call(400, http.MethodGet, treePath+"/song", "", append(handshake, "Sec-WebSocket-Version", "8")...)
	s.call(400, http.MethodGet, treePath+"/song", "", append(handshake, "Sec-WebSocket-Key", "")...)
}
