package controlplane

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// AggregatedCounter counts what other servers keep for a plane. Its methods must be cheap.
type AggregatedCounter interface {
	// Any tells whether there are other servers.
	Any() bool
	// Counts are how many objects another server keeps of a group version in a namespace, by
	// resource, as they were counted last. known tells whether they ever were.
	Counts(namespace string, gv schema.GroupVersion) (counts map[string]int, known bool)
	// Count is how many objects of a resource another server keeps in a namespace.
	Count(namespace string, resource schema.GroupResource) (n int, known bool)
	// Subscribe has f called when there are more or fewer objects of a resource in a
	// namespace, until the plane stops.
	Subscribe(f func(namespace string, resource schema.GroupResource, more int))
}

// CountAggregated asks for [Plane.AggregatedCounter]. Nothing is counted in a plane whose parts
// do not ask.
func (p *Plan) CountAggregated() { p.countAggregated = true }

// CountsAggregated tells whether a part asked for counts. Parts ask when the plane runs, not
// before: later parts may.
func (p *Plan) CountsAggregated() bool { return p.countAggregated }

// ProvideAggregatedCounter declares who counts. At most one part may call it.
func (p *Plan) ProvideAggregatedCounter(name string, c AggregatedCounter) {
	p.counters = append(p.counters, named[AggregatedCounter]{p.part, name, c})
}

// AggregatedCounter counts what other servers keep for the plane; nil if no part does.
func (p *Plane) AggregatedCounter() AggregatedCounter {
	if len(p.plan.counters) == 0 {
		return nil
	}
	return p.plan.counters[0].value
}

// AdmitAggregated adds a check of what is created at other servers that are guarded, or ask.
// Checks are made in the order of the parts. The object that they see has no content but its
// name and namespace.
func (p *Plan) AdmitAggregated(name string, plugin admission.ValidationInterface) {
	p.admitAggregated = append(p.admitAggregated, named[admission.ValidationInterface]{p.part, name, plugin})
}

// AdmitAggregated returns why something may not be created at another server.
func (p *Plane) AdmitAggregated(ctx context.Context, a admission.Attributes) error {
	for _, plugin := range p.plan.admitAggregated {
		if !plugin.value.Handles(a.GetOperation()) {
			continue
		}
		if err := plugin.value.Validate(ctx, a, nil); err != nil {
			return err
		}
	}
	return nil
}
