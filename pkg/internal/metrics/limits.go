package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

//nolint:gochecknoglobals // metrics are the process'
var (
	limitsRegistered sync.Once
	overLimit        = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sailplane", Subsystem: "limits", Name: "exceeded_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests over a limit of fairness.Limits, by the limit and the mode: " +
			"those of mode enforce were refused, those of mode warn were not",
	}, []string{"limit", "mode"})
)

// OverLimit counts a request that is over a limit.
func OverLimit(limit, mode string) {
	limitsRegistered.Do(func() { legacyregistry.MustRegister(overLimit) })
	overLimit.WithLabelValues(limit, mode).Inc()
}
