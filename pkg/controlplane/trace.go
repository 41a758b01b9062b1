package controlplane

import (
	"context"
	"fmt"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
)

// TracerFunc makes the provider that spans go to. It is called once for each
// server, which shuts it down after its last request.
type TracerFunc func() (tracing.TracerProvider, error)

// lastSpans is how long a stop waits for a collector to take the last spans.
const lastSpans = 2 * time.Second

// tracer records the spans of a server; the zero value records none.
type tracer struct{ provider tracing.TracerProvider }

func startTracer(from []named[TracerFunc]) (*tracer, error) {
	t := &tracer{}
	for _, f := range from {
		var err error
		if t.provider, err = f.value(); err != nil {
			return nil, fmt.Errorf("part %q: %s: %w", f.part, f.name, err)
		}
	}
	return t, nil
}

// configure makes the handler chain trace requests.
func (t *tracer) configure(c *genericapiserver.Config) {
	if t.provider != nil {
		c.TracerProvider = t.provider
	}
}

// stop delivers the last spans. Those that a collector does not take are lost.
func (t *tracer) stop() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		klog.Background().Error(err, "Spans were lost when the server stopped")
	}
}
