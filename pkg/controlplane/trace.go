package controlplane

import (
	"context"
	"time"

	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
)

// TracerFunc makes the provider that spans go to. It is called once for each
// server, which shuts it down after its last request.
type TracerFunc func() (tracing.TracerProvider, error)

// lastSpans is how long a stop waits for a collector to take the last spans.
const lastSpans = 2 * time.Second

// trace makes the provider of spans, if a part has one.
func (r *run) trace(h *host) error {
	for _, t := range h.plan.tracers {
		provider, err := t.value()
		if err != nil {
			return t.failed(err)
		}
		h.tracer = provider
		r.onStop(func(ctx context.Context) error {
			// Those that a collector does not take are lost.
			ctx, cancel := context.WithTimeout(ctx, lastSpans)
			defer cancel()
			if err := provider.Shutdown(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Spans were lost when the server stopped")
			}
			return nil
		})
	}
	return nil
}
