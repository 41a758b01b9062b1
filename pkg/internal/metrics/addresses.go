package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

//nolint:gochecknoglobals // metrics are the process'
var (
	addressesRegistered sync.Once
	addressesRefused    = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sailplane", Subsystem: "addresses", Name: "refused_total", StabilityLevel: metrics.ALPHA,
		Help: "What was refused because an address had too much of it, by limit: " +
			"connections, handshakes, failures (requests that failed to authenticate)",
	}, []string{"limit"})
)

// RefusedAddress counts what one address had too much of.
func RefusedAddress(limit string) {
	addressesRegistered.Do(func() { legacyregistry.MustRegister(addressesRefused) })
	addressesRefused.WithLabelValues(limit).Inc()
}
