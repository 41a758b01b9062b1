package metrics

import (
	"context"
	"errors"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

//nolint:gochecknoglobals // metrics are the process'
var (
	sourcesRegistered sync.Once
	sourceReads       = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sailplane", Subsystem: "source", Name: "reads_total", StabilityLevel: metrics.ALPHA,
		Help: "Reads of what resources are made from that are not in the storage, by resource and result: ok, error, timeout",
	}, []string{"resource", "result"})
)

// SourceRead counts a read of what a resource is made from.
func SourceRead(resource string, err error) {
	sourcesRegistered.Do(func() { legacyregistry.MustRegister(sourceReads) })
	result := "ok"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		result = "timeout"
	case err != nil:
		result = "error"
	}
	sourceReads.WithLabelValues(resource, result).Inc()
}
