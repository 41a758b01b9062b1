package loopback_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func client(h http.HandlerFunc) (*http.Client, *loopback.Transport) {
	t := &loopback.Transport{}
	t.Serve(h)
	return &http.Client{Transport: t}, t
}

func get(ctx context.Context, c *http.Client) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://loopback/a?b=c", strings.NewReader("in"))
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	c, _ := client(func(w http.ResponseWriter, r *http.Request) {
		in, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.RequestURI+" "+r.Host+" "+string(in))
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "lost") // after the header was sent, as on a connection
		_, _ = io.WriteString(w, "out")
	})
	resp, err := get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "out" || resp.StatusCode != http.StatusTeapot {
		t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
	}
	if got := resp.Header.Get("X-Seen"); got != "/a?b=c loopback in" {
		t.Errorf("the handler saw %q", got)
	}
	if resp.Header.Get("X-Late") != "" {
		t.Error("a header set after WriteHeader was sent")
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		handler http.HandlerFunc
		check   func(t *testing.T, resp *http.Response, err error)
	}{
		"empty answer": {
			reason:  "a handler that writes nothing answers 200",
			handler: func(http.ResponseWriter, *http.Request) {},
			check: func(t *testing.T, resp *http.Response, err error) {
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("got %v, %v", resp, err)
				}
			},
		},
		"panic before the header": {
			reason:  "the client gets an error, the process lives",
			handler: func(http.ResponseWriter, *http.Request) { panic("seized") },
			check: func(t *testing.T, _ *http.Response, err error) {
				if err == nil || !strings.Contains(err.Error(), "seized") {
					t.Errorf("got %v", err)
				}
			},
		},
		"abort in the body": {
			reason: "http.ErrAbortHandler cuts the body off, as it does a connection",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "half")
				panic(http.ErrAbortHandler)
			},
			check: func(t *testing.T, resp *http.Response, err error) {
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if string(body) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("got %q, %v", body, err)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := client(tc.handler)
			resp, err := get(t.Context(), c)
			if resp != nil {
				defer resp.Body.Close()
			}
			t.Log(tc.reason)
			tc.check(t, resp, err)
		})
	}
}

// TestStream checks that a body arrives while the handler runs, and that the
// handler's context ends when the client closes it.
func TestStream(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c, transport := client(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		_, _ = io.WriteString(w, "event")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		<-r.Context().Done()
	})
	resp, err := get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	event := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != "event" {
		t.Errorf("got %q, %v", event, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	transport.Close()
}

func TestCancelBeforeAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, transport := client(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := get(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	transport.Close()
}

// TestCanceled: what a handler still answers when its client has given up is never
// taken for an answer, nor for the end of one.
func TestCanceled(t *testing.T) {
	t.Parallel()
	const times = 200 // the handler and the context end at the same time
	c, transport := client(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			return
		}
		_, _ = io.WriteString(w, "half")
		<-r.Context().Done()
	})
	for range times {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := get(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if body, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("the body: got %q, %v", body, err)
		}
		_ = resp.Body.Close()
		if resp, err := get(ctx, c); !errors.Is(err, context.Canceled) {
			t.Fatalf("after the end of the context: got %v, %v", resp, err)
		}
	}
	transport.Close()
}

func TestCloseWaitsAndRefuses(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c, transport := client(func(http.ResponseWriter, *http.Request) { <-release })
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			resp, err := get(t.Context(), c)
			if err == nil {
				_ = resp.Body.Close()
			} else if !errors.Is(err, loopback.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	}
	closed := make(chan struct{})
	go func() { transport.Close(); close(closed) }()
	close(release)
	<-closed
	wg.Wait()
	if _, err := get(t.Context(), c); !errors.Is(err, loopback.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	early := &http.Client{Transport: &loopback.Transport{}}
	if _, err := get(t.Context(), early); !errors.Is(err, loopback.ErrNoHandler) {
		t.Errorf("before Serve: %v", err)
	}
}

// TestHandlerGoesAhead: a handler writes what a connection would buffer without
// anybody reading, so that a watch of a busy client is not ended as too slow; and
// no more than that.
func TestHandlerGoesAhead(t *testing.T) {
	t.Parallel()
	const chunk, ahead = 4 << 10, 1 << 20 // bytes
	wrote := make(chan int, 2*ahead/chunk)
	c, transport := client(func(w http.ResponseWriter, _ *http.Request) {
		for n := 0; n < 2*ahead; n += chunk {
			if _, err := w.Write(make([]byte, chunk)); err != nil {
				return
			}
			wrote <- n + chunk
		}
	})
	resp, err := get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < ahead; { // hangs where the handler waits for a reader
		n = <-wrote
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	transport.Close()
	if len(wrote) > 0 {
		t.Errorf("the handler wrote %d bytes more than %d ahead of its client", len(wrote)*chunk, ahead)
	}
}

// TestCut: a handler that waits for a client that does not read is let go, and what
// the client then reads ends with an error.
func TestCut(t *testing.T) {
	t.Parallel()
	const ahead = 1 << 20 // bytes
	full := make(chan struct{})
	c, transport := client(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, ahead))
		close(full)
		if _, err := w.Write([]byte("more")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the handler got %v", err)
		}
	})
	resp, err := get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	<-full
	transport.Cut()
	transport.Close()
	if body, err := io.ReadAll(resp.Body); len(body) != ahead || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d bytes, %v", len(body), err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}
