package controlplane

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// Transformation turns encoded objects into what is stored, and back.
type Transformation struct {
	// Resources has the transformer of every resource, of groups, CRDs and
	// whatever else the plane stores. It is asked for one that may be defined
	// later, too.
	Resources value.ResourceTransformers
	// Checks are asked by /healthz and /readyz, and not by /livez: to restart a
	// server brings no key service back.
	Checks []healthz.HealthChecker
	// Stop is called once, after the last value was read and written. May be nil.
	Stop func()
}

// TransformFunc starts what transforms the values of a server. The context is
// not that of the start: it lives as long as the server does.
type TransformFunc func(ctx context.Context) (*Transformation, error)

// Transform has values transformed between the objects that are served and the
// storage, such as encrypted. One part may. It is started before anything is
// read from the storage. The feed of the plane reads through it as well.
func (p *Plan) Transform(name string, start TransformFunc) {
	p.transforms = append(p.transforms, named[TransformFunc]{p.part, name, start})
}

// checkTransforms finds a second transformation, which would not know whose
// values are in the storage.
func (p *Plan) checkTransforms() []error {
	if len(p.transforms) < 2 {
		return nil
	}
	first, second := p.transforms[0], p.transforms[1]
	return []error{fmt.Errorf("part %q: %s: part %q has %s of the stored values already: leave one of them out",
		second.part, second.name, first.part, first.name)}
}

// transform starts the transformation of stored values, if a part has one.
func (r *run) transform(life context.Context, plan *Plan, backend *store.Backend, shared *shared) error {
	for _, t := range plan.transforms {
		transformation, err := t.value(life)
		if err != nil {
			return fmt.Errorf("part %q: %s: %w", t.part, t.name, err)
		}
		if stop := transformation.Stop; stop != nil {
			r.onStop(func(context.Context) error { stop(); return nil })
		}
		backend.Transformers, shared.stored = transformation.Resources, transformation.Checks
	}
	return nil
}
