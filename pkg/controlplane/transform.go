package controlplane

import (
	"context"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/value"
)

// Transformation turns encoded objects into what is stored, and back.
type Transformation struct {
	// Resources has the transformer of every resource, of groups, CRDs and whatever
	// else the plane stores, also of those that are defined later.
	Resources value.ResourceTransformers
	// Checks are part of /healthz and /readyz, and not of /livez: a restart of the
	// server brings no key service back.
	Checks []healthz.HealthChecker
	// Stop is called once, after the last value was read and written. May be nil.
	Stop func()
}

// TransformFunc starts what transforms the values of a server. The context is
// not that of the start: it lives as long as the server does.
type TransformFunc func(ctx context.Context) (*Transformation, error)

// transform starts the transformation of stored values, if a part has one.
func (r *run) transform(life context.Context, h *host) error {
	for _, t := range h.plan.transforms {
		transformation, err := t.value(life)
		if err != nil {
			return t.failed(err)
		}
		if stop := transformation.Stop; stop != nil {
			r.onStop(func(context.Context) error { stop(); return nil })
		}
		h.backend.Transformers = transformation.Resources
		h.stored = append(h.stored, transformation.Checks...)
	}
	return nil
}
