package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

//nolint:gochecknoglobals // metrics are the process'
var (
	serversRegistered sync.Once
	serverInfo        = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "sailplane", Name: "server_info", StabilityLevel: metrics.ALPHA,
		Help: "1 for a server of this process on a shared storage, with the identity that holds its Leases",
	}, []string{"identity"})
	// The name is that of client-go's elector.
	elected = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "leader_election_master_status", StabilityLevel: metrics.ALPHA,
		Help: "1 if a server of this process does the elected work of this name, 0 if it waits for its Lease",
	}, []string{"name"})
)

func registerServers() {
	serversRegistered.Do(func() { legacyregistry.MustRegister(serverInfo, elected) })
}

// Server says that there is a server until gone is called.
func Server(identity string) (gone func()) {
	registerServers()
	serverInfo.WithLabelValues(identity).Set(1)
	return func() { serverInfo.DeleteLabelValues(identity) }
}

// Elected says that elected work waits for its Lease. It is done between the calls of begin and end.
func Elected(name string) (begin, end func()) {
	registerServers()
	now := elected.WithLabelValues(name)
	now.Add(0) // so that it is there
	return func() { now.Add(1) }, func() { now.Add(-1) }
}
