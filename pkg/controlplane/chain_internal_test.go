package controlplane

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	utilwaitgroup "k8s.io/apimachinery/pkg/util/waitgroup"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// TestOwnRequestsWhileDraining: a plane that takes no new requests takes those of
// its own parts, without which requests that run could not be answered.
func TestOwnRequestsWhileDraining(t *testing.T) {
	t.Parallel()
	c := &chain{signals: newSignals()}
	running := new(utilwaitgroup.SafeWaitGroup)
	var served http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	long := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())
	counted := c.counted(served, genericfilters.WithWaitGroup(served, long, running))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Verb: "get"})))
	})
	front := httptest.NewServer(h)
	defer front.Close()
	own := &loopback.Transport{}
	own.Serve(h)
	defer own.Close()
	status := func(client *http.Client, url string) int {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		if got := status(front.Client(), front.URL); got != want {
			t.Errorf("somebody's request: got %d, want %d", got, want)
		}
		if got := status(&http.Client{Transport: own}, "http://loopback"); got != http.StatusOK {
			t.Errorf("the plane's own request: got %d", got)
		}
		c.signals.markDraining()
		running.Wait()
	}
}
