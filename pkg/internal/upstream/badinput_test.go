package upstream_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// TestFlushedErrors: an error that is held back until it is whole is not sent as a
// success when its handler flushes.
func TestFlushedErrors(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusConflict, http.StatusInternalServerError} {
		handler := upstream.BadInput(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			_, _ = w.Write([]byte("{}"))
		}), func(schema.GroupResource) bool { return true },
			func(*http.Request, *request.RequestInfo) bool { return false })
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info := &request.RequestInfo{IsResourceRequest: true, Verb: "create", Resource: "things"}
			handler.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
		}))
		resp, err := http.Post(server.URL, "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("got %d, want %d", resp.StatusCode, status)
		}
		server.Close()
	}
}
