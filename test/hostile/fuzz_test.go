package hostile

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzHandler sends whatever it is given to a server in the process, as its
// administrator. The server never panics, never answers with a code of 500 and
// up but for the one below, and says what is wrong in a Status.
//
//	go test -fuzz FuzzHandler -fuzztime 5m ./hostile
func FuzzHandler(f *testing.F) {
	rows := table()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		if len(r.body) > 64<<10 || r.code >= http.StatusInternalServerError || placeholders.MatchString(r.body) {
			continue // large bodies slow the fuzzer down, and its mutations of them find nothing
		}
		path, query, _ := strings.Cut(r.path, "?")
		f.Add(r.method, path, query, r.contentType, r.accept, r.body)
	}
	w := start(f)
	f.Fuzz(func(t *testing.T, method, path, query, contentType, accept, body string) {
		if !sendable(method, path) {
			t.Skip("Go's HTTP server would not take it")
		}
		r := request{method: method, path: path, contentType: contentType, accept: accept, body: body}
		if query != "" {
			r.path += "?" + query
		}
		tryAny(t, w, r)
	})
}

// sendable says whether a request with this method and path reaches a handler.
func sendable(method, path string) bool {
	if method == "" || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#") {
		return false
	}
	_, err := http.NewRequest(method, "http://x", nil)
	return err == nil
}

// tryAny sends a request of which nothing is known and checks what must hold for all.
func tryAny(t *testing.T, w *world, r request) {
	t.Helper()
	limit := patience
	if mayWatch(r) {
		limit = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	a, err := w.doors["in-process"].send(ctx, r)
	logs.noPanic(t)
	switch {
	case errors.Is(err, errNotARequest):
		t.Skip(err)
	case mayWatch(r) && errors.Is(err, context.DeadlineExceeded):
		return
	case err != nil:
		var invalid *url.Error
		if errors.As(err, &invalid) && strings.Contains(err.Error(), "invalid header") {
			t.Skip(err)
		}
		t.Fatalf("%+v: %v", r, err)
	}
	if a.code >= http.StatusInternalServerError && !waited(a) {
		t.Errorf("%s %s: code %d\ncontent type %q, body %q\n%s", r.method, r.path, a.code, r.contentType, short(r.body), short(a.body))
	}
	if a.code < http.StatusBadRequest || r.method == http.MethodHead || !strings.Contains(a.header.Get("Content-Type"), "json") {
		return
	}
	if _, err := statusOf(a); err != nil {
		t.Errorf("%s %s: code %d: %v: %s", r.method, r.path, a.code, err, short(a.body))
	}
}

// mayWatch says whether the answer may have no end.
func mayWatch(r request) bool {
	return strings.Contains(r.path, "watch")
}

// waited is the only answer of 500 and up that is right: 504, for a resource
// version from the future. The server waits for it to come, and gives up.
func waited(a answer) bool {
	s, err := statusOf(a)
	return err == nil && a.code == http.StatusGatewayTimeout && s.Reason == metav1.StatusReasonTimeout &&
		strings.Contains(s.Message, "Too large resource version")
}
