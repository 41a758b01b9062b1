package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
)

// at is a cluster whose API server is a function.
func at(t *testing.T, name string, answer http.HandlerFunc) *v1alpha1.Cluster {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	c := cluster(name)
	c.Spec.KubernetesAPIEndpoints.ServerEndpoints[0].ServerAddress = strings.TrimPrefix(s.URL, "https://")
	c.Spec.KubernetesAPIEndpoints.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return c
}

func TestHealth(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{watch: true, health: time.Second})
	c := clientOf(t, plane)
	say := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	gone := at(t, "gone", say(200, ""))
	unknown := at(t, "unknown", say(200, `{"gitVersion":"v1.37.0"}`))
	unknown.Spec.KubernetesAPIEndpoints.CABundle = nil
	bare := cluster("bare")
	bare.Spec.KubernetesAPIEndpoints.ServerEndpoints = nil
	gone.Spec.KubernetesAPIEndpoints.ServerEndpoints[0].ServerAddress = "127.0.0.1:1"
	cases := map[string]struct {
		cluster                  *v1alpha1.Cluster
		status                   metav1.ConditionStatus
		reason, message, version string
	}{
		"answers":  {at(t, "answers", say(200, `{"gitVersion":"v1.37.2"}`)), "True", "Answers", "", "v1.37.2"},
		"strict":   {at(t, "strict", say(403, "")), "True", "Answers", "", ""},
		"ill":      {at(t, "ill", say(500, "")), "False", "Unreachable", "500 Internal Server Error", ""},
		"nonsense": {at(t, "nonsense", say(200, "<html>")), "False", "Unreachable", "invalid character", ""},
		"large":    {at(t, "large", say(200, `{"gitVersion":"`+strings.Repeat("v", 1<<17))), "False", "Unreachable", "too large", ""},
		"redirect": {at(t, "redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/version", http.StatusFound)
		}), "False", "Unreachable", "302 Found", ""},
		"hangs":   {at(t, "hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "False", "Unreachable", "deadline exceeded", ""},
		"gone":    {gone, "False", "Unreachable", "refused", ""},
		"unknown": {unknown, "False", "Unreachable", "certificate", ""},
		"bare":    {bare, "Unknown", "NoServer", "no server", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.Create(t.Context(), tc.cluster); err != nil {
				t.Fatal(err)
			}
			plane.Eventually(t, func(ctx context.Context) error {
				var got v1alpha1.Cluster
				if err := c.Get(ctx, client.ObjectKeyFromObject(tc.cluster), &got); err != nil {
					return err
				}
				ok := got.Condition(v1alpha1.ClusterOK)
				if ok.Status != tc.status || ok.Reason != tc.reason || !strings.Contains(ok.Message, tc.message) || got.Status.Version != tc.version {
					return fmt.Errorf("status is %+v", got.Status)
				}
				if ok.LastHeartbeatTime.IsZero() == (tc.status == metav1.ConditionTrue) || ok.LastTransitionTime.IsZero() {
					return fmt.Errorf("times are %v", ok)
				}
				return nil
			})
		})
	}
}
