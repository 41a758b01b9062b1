package middleware

import (
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Profiling is the part that serves profiles of the process below /debug/pprof/, as
// kube-apiserver with --profiling does and net/http/pprof describes them. They show
// what all planes of the process do, so only a server can have the part. Requests are
// authorized as those to any path: system:masters may, others need a rule of RBAC with
// nonResourceURLs ["/debug/pprof", "/debug/pprof/*"]. A profile may take longer than the
// minute that other requests have.
type Profiling struct{}

// PartName implements the name errors use.
func (Profiling) PartName() string { return "middleware.Profiling" }

// Install implements controlplane.Part.
func (Profiling) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the handler.
func (Profiling) InstallServer(p *controlplane.ServerPlan) error {
	profiles := mux.NewPathRecorderMux("profiling")
	routes.Profiling{}.Install(profiles)
	p.Root().Handle("/debug/pprof", profiles)
	p.Root().Handle("/debug/pprof/", profiles)
	return nil
}
