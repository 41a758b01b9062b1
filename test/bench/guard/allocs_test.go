//go:build !race

package guard

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

const (
	// batch is how many requests are counted together, with the work that they
	// leave behind. Of several batches the least counts: what else the server does
	// in the meantime is more in some.
	batch   = 200
	batches = 3
	// quiet is for how long next to nothing is allocated when that work is done.
	quiet         = 20 * time.Millisecond
	quietWait     = 30 * time.Second
	quietObjs     = 20
	allocsListed  = 100
	collection    = "/api/v1/namespaces/default/configmaps"
	contentJSON   = "application/json"
	contentApply  = "application/apply-patch+yaml"
	authorizeWait = 30 * time.Second
)

// TestAllocations counts what the server allocates for a request of each kind,
// with what it does about it in the background. There is no client: requests are
// handed to the server's handler.
func TestAllocations(t *testing.T) {
	s := start(t, controlplane.New("guard").With(parts(), withUser(t)))
	mayEverything(t, s)
	fillListed(t, s, allocsListed)
	h := s.Handler()
	awaitRight(t, h)
	counts := budgets{}
	// In an order in which each finds what it needs.
	for _, kind := range []struct {
		name string
		want int
		make func(i int) *http.Request
	}{
		{"create", http.StatusCreated, func(i int) *http.Request {
			return request(http.MethodPost, collection, contentJSON, configMap(i, "created"))
		}},
		{"get", http.StatusOK, func(i int) *http.Request { return request(http.MethodGet, item(i), "", "") }},
		{fmt.Sprint("list of ", allocsListed), http.StatusOK, func(int) *http.Request {
			return request(http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps", "", "")
		}},
		{"update", http.StatusOK, func(i int) *http.Request {
			return request(http.MethodPut, item(i), contentJSON, configMap(i, "updated"))
		}},
		{"apply", http.StatusOK, func(i int) *http.Request {
			return request(http.MethodPatch, item(i)+"?fieldManager=guard&force=true", contentApply, configMap(i, "applied"))
		}},
		{"delete", http.StatusOK, func(i int) *http.Request { return request(http.MethodDelete, item(i), "", "") }},
	} {
		i, least := 0, math.Inf(1)
		for range batches {
			all := testing.AllocsPerRun(1, func() {
				for range batch {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, kind.make(i))
					if i++; w.Code != kind.want {
						t.Fatalf("%s: status %d, want %d: %s", kind.name, w.Code, kind.want, w.Body)
					}
				}
				awaitQuiet(t)
			})
			least = min(least, all/batch)
		}
		counts["allocations of a "+kind.name] = least
	}
	check(t, counts)
}

// awaitQuiet returns when the server has done what requests left behind.
func awaitQuiet(t *testing.T) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	read := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	for begun, before := time.Now(), read(); ; {
		time.Sleep(quiet)
		now := read()
		if now-before <= quietObjs {
			return
		}
		if before = now; time.Since(begun) > quietWait {
			t.Logf("the server still allocates after %v", quietWait)
			return
		}
	}
}

// awaitRight returns when the server knows what the user may do.
func awaitRight(t *testing.T, h http.Handler) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(http.MethodGet, collection, "", ""))
		if w.Code == http.StatusOK {
			return
		}
		if time.Since(begun) > authorizeWait {
			t.Fatalf("the user may not list: %d %s", w.Code, w.Body)
		}
	}
}

func request(method, path, contentType, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", contentJSON)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func item(i int) string { return fmt.Sprintf("%s/guard-%d", collection, i) }

// configMap is JSON, and so YAML, of about 1 KiB.
func configMap(i int, done string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"guard-%d"},"data":{"value":"%s"}}`,
		i, done+strings.Repeat("x", 1024-len(done)))
}
