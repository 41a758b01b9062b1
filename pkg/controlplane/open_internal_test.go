package controlplane

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// opened are filters around a handler, as the chain has them.
func opened(o *openRequests, h http.Handler) http.Handler {
	config := &genericapiserver.Config{LongRunningFunc: func(*http.Request, *request.RequestInfo) bool { return true }}
	h = o.loggedIn(o.allowed(h, &inquiry{}))
	return o.received(h, config)
}

// watching is a request as clients with a token send it.
func watching(ctx context.Context) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?watch=1", http.NoBody)
	for _, name := range []string{"Accept", "Accept-Encoding", "Authorization", "User-Agent"} {
		r.Header.Set(name, "a")
	}
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "watch"})
	return r.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: "alice"}))
}

// TestOpenRequestsAreSmall: there may be many thousands, most of which wait.
func TestOpenRequestsAreSmall(t *testing.T) {
	o := newOpenRequests(&signal.Change{})
	h, w, r := opened(o, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), httptest.NewRecorder(), watching(t.Context())
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			h.ServeHTTP(w, r)
		}
	})
	if got := result.AllocedBytesPerOp(); got > 2048 {
		t.Errorf("an open request allocates %d bytes", got)
	} else {
		t.Logf("an open request allocates %d bytes", got)
	}
}

// TestOpenRequestsAreSpread: those that come at once are not asked about at once.
func TestOpenRequestsAreSpread(t *testing.T) {
	t.Parallel()
	o := newOpenRequests(&signal.Change{})
	const each = 5
	var all []*openRequest
	for range each * parts {
		one := &openRequest{by: &inquiry{}}
		o.add(one)
		all = append(all, one)
	}
	for turn := range parts {
		if got := len(o.of(turn)); got != each {
			t.Errorf("turn %d has %d requests, want %d", turn, got, each)
		}
	}
	for _, one := range all {
		o.remove(one)
	}
	if !o.empty() {
		t.Error("requests that ended are kept")
	}
}

// TestRefusedRequestEnds: also one that has taken its connection.
func TestRefusedRequestEnds(t *testing.T) {
	t.Parallel()
	o := newOpenRequests(&signal.Change{})
	ended := false
	opened(o, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		one := openRequestOf(r.Context())
		if one == nil || one.login.GetName() != "alice" || one.header.Get("Authorization") != "a" || o.empty() {
			t.Fatalf("the request is not known: %+v", one)
		}
		one.refuse(nil)
		<-r.Context().Done()
		ended = true
	})).ServeHTTP(httptest.NewRecorder(), watching(t.Context()))
	if !ended || !o.empty() {
		t.Error("the request did not end")
	}
}

// TestOpenRequestsEndWithThePlane: somebody's and the server's own, and those that come when
// it has ended.
func TestOpenRequestsEndWithThePlane(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		before bool // the request is there when the plane ends
		own    bool
	}{
		"somebody's":       {"it would keep the plane from stopping", true, false},
		"own":              {"the server's clients watch, too", true, true},
		"somebody's, late": {"it came before the end, and was authorized after it", false, false},
		"own, late":        {"it came before the end, and was authorized after it", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOpenRequests(&signal.Change{})
			serve := opened(o, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if tc.own != o.empty() {
					t.Errorf("%s: that it is asked again is wrong", tc.reason)
				}
				if tc.before {
					o.end()
				}
				<-r.Context().Done()
			}))
			if !tc.before {
				o.end()
			}
			if !tc.own {
				serve.ServeHTTP(httptest.NewRecorder(), watching(t.Context()))
			} else {
				own := &loopback.Transport{}
				own.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					serve.ServeHTTP(w, r.WithContext(watching(r.Context()).Context()))
				}))
				defer own.Close()
				resp, err := (&http.Client{Transport: own}).Get("http://loopback")
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			if len(o.own) > 0 || !o.empty() {
				t.Errorf("%s: it is kept", tc.reason)
			}
		})
	}
}
