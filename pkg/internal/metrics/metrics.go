// Package metrics answers /metrics with what libraries count in the process-wide
// registry of Kubernetes, in fewer series, because each series costs storage.
//
// No series has a user, a name or a namespace, but for the fifty EtcdStorages that are
// nearest to a limit. Most series are the buckets of
// histograms, a dozen or two for each resource and verb. Handler thins them out,
// except those that dashboards and objectives use. Buckets are cumulative, so the
// remaining ones are right, and quantiles only less precise.
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Buckets is how many finite buckets of a histogram remain.
const Buckets = 6

// Handler serves the metrics of the process in the Prometheus exposition formats.
func Handler() http.Handler {
	return promhttp.HandlerFor(reduced{legacyregistry.DefaultGatherer},
		promhttp.HandlerOpts{ProcessStartTime: legacyregistry.GetProcessStart()})
}

// reduced leaves out series that its gatherer has too many of.
type reduced struct{ prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (r reduced) Gather() ([]*dto.MetricFamily, error) {
	all, err := r.Gatherer.Gather()
	kept := all[:0]
	for _, f := range all {
		switch f.GetName() {
		case "apiserver_request_slo_duration_seconds":
			continue // deprecated: the same as apiserver_request_sli_duration_seconds
		case "apiserver_watch_events_dispatch_duration_seconds":
			for _, m := range f.Metric { // new in 1.37, for each resource: means will do
				if h := m.GetHistogram(); h != nil {
					h.Bucket = nil
				}
			}
		case "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds":
		default:
			for _, m := range f.Metric {
				if h := m.GetHistogram(); h != nil {
					h.Bucket = thin(h.Bucket)
				}
			}
		}
		kept = append(kept, f)
	}
	return kept, err
}

// thin keeps buckets at equal distances, including the last one.
func thin(all []*dto.Bucket) []*dto.Bucket {
	step := (len(all) + Buckets - 1) / Buckets
	if step <= 1 {
		return all
	}
	kept := make([]*dto.Bucket, 0, Buckets)
	for i := (len(all) - 1) % step; i < len(all); i += step {
		kept = append(kept, all[i])
	}
	return kept
}
