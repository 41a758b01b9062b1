package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

//nolint:gochecknoglobals // metrics are the process'
var (
	unwrittenRegistered sync.Once
	unwritten           = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sailplane", Subsystem: "audit", Name: "events_not_written_total", StabilityLevel: metrics.ALPHA,
		Help: "Audit events that were counted and not written or sent, by whose budget was spent: stranger, caller",
	}, []string{"budget"})
)

// Unwritten counts an audit event that is over a budget: "stranger" or "caller".
func Unwritten(budget string) {
	unwrittenRegistered.Do(func() { legacyregistry.MustRegister(unwritten) })
	unwritten.WithLabelValues(budget).Inc()
}
