package controlplane

import "k8s.io/apimachinery/pkg/runtime/schema"

// AggregatedCounts are how many objects another server keeps of a group version in a
// namespace, by resource, as they were counted last. known tells whether they ever were.
type AggregatedCounts func(namespace string, gv schema.GroupVersion) (counts map[string]int, known bool)

// CountAggregated asks for [Plane.AggregatedCounts]. Nothing is counted in a plane whose parts
// do not ask.
func (p *Plan) CountAggregated() { p.countAggregated = true }

// CountsAggregated tells whether a part asked for counts. Parts ask when the plane runs, not
// before: later parts may.
func (p *Plan) CountsAggregated() bool { return p.countAggregated }

// ProvideAggregatedCounts declares who counts. The function must be cheap.
func (p *Plan) ProvideAggregatedCounts(counts AggregatedCounts) { p.counts = append(p.counts, counts) }

// AggregatedCounts counts what other servers keep for the plane.
func (p *Plane) AggregatedCounts(namespace string, gv schema.GroupVersion) (counts map[string]int, known bool) {
	for _, c := range p.plan.counts {
		if counts, known = c(namespace, gv); known {
			return counts, true
		}
	}
	return nil, false
}
