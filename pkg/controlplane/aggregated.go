package controlplane

import (
	"cmp"
	"time"
)

// AggregatedServer is how another API server is, to which a plane hands requests.
type AggregatedServer struct {
	// Name is its namespace and Service, "NAMESPACE/NAME".
	Name string
	// Address is where it is, for people: a URL, or that it is in this process.
	Address string
	// Groups are the group versions that it answers here, "GROUP/VERSION".
	Groups []string
	// Problem is why it cannot be used. Empty: it can, but for Missing.
	Problem string
	// Missing are group versions that it does not answer, and why.
	Missing map[string]string
	// Since is when it became usable, or unusable.
	Since time.Time
	// Latency is how long its last check took.
	Latency time.Duration
	// Conflicts are the group versions that others have, too, and who answers.
	Conflicts []string
}

// AggregatedServers declares servers that the plane hands requests to. The function returns
// how they are now, in order.
func (p *Plan) AggregatedServers(list func() []AggregatedServer) {
	p.aggregated = append(p.aggregated, list)
}

// AggregatedServers are the servers that the plane hands requests to.
func (p *Plane) AggregatedServers() []AggregatedServer {
	var all []AggregatedServer
	for _, list := range p.plan.aggregated {
		all = append(all, list()...)
	}
	return all
}

// AwaitServers says how long the deletion of a namespace waits for a server that is away and
// may hold objects of it. Zero says nothing.
func (p *Plan) AwaitServers(patience time.Duration) { p.patience = cmp.Or(patience, p.patience) }

// ServerPatience is how long the deletion of a namespace waits for a server that is away, 30 s
// unless a part says something else.
func (p *Plane) ServerPatience() time.Duration { return cmp.Or(p.plan.patience, 30*time.Second) }
