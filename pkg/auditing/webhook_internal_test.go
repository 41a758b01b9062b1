package auditing

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
)

// TestShutdownGivesUp has a server stop whose webhook is down and would be tried
// again in an hour.
func TestShutdownGivesUp(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Batch, Blocking} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 10)
			down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked <- struct{}{}
				w.WriteHeader(http.StatusBadGateway)
			}))
			defer down.Close()
			config := filepath.Join(t.TempDir(), "kubeconfig")
			text := "current-context: w\ncontexts: [{name: w, context: {cluster: w}}]\nclusters: [{name: w, cluster: {server: '" + down.URL + "'}}]"
			if err := os.WriteFile(config, []byte(text), fileMode); err != nil {
				t.Fatal(err)
			}
			s, err := Webhook{ConfigFile: config, flush: time.Millisecond}.sender(time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			s.deliver(mode, 0, buffered.BatchConfig{MaxBatchSize: 1, MaxBatchWait: time.Hour})
			stop := make(chan struct{})
			if err := s.Run(stop); err != nil {
				t.Fatal(err)
			}
			delivered := make(chan bool)
			go func() { delivered <- s.ProcessEvents(&auditinternal.Event{}) }()
			<-asked
			close(stop)
			s.Shutdown()
			if !<-delivered {
				t.Error("a request was refused for an event that is not delivered")
			}
		})
	}
}
