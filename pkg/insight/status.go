// Package insight lets an operator look into a running server: who asks most, what
// was slow, what is stored, and what takes memory. Everything that it keeps is
// bounded, however many users there are.
package insight

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/page"
)

// Path is where the root plane of a server serves its [Report], to those who may get
// this path: group system:masters, and who has a rule with it in nonResourceURLs.
const Path = "/debug/status"

// Status serves a [Report] of the server as JSON at [Path] of the root plane. It counts
// the requests of all planes, by the user who logged in, not the one that is
// impersonated.
type Status struct {
	// SlowAfter is how long a request takes that the report lists as slow; watches
	// are none. Empty: one second.
	SlowAfter time.Duration
}

// slowAfter is the default of Status.SlowAfter.
const slowAfter = time.Second

// PartName implements the name errors use.
func (Status) PartName() string { return "insight.Status" }

// Install implements controlplane.Part.
func (Status) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the counters of every plane, and the page.
func (s Status) InstallServer(p *controlplane.ServerPlan) error {
	if s.SlowAfter < 0 {
		return fmt.Errorf("field SlowAfter is %v: want more than 0, or 0 for %v", s.SlowAfter, slowAfter)
	}
	if s.SlowAfter == 0 {
		s.SlowAfter = slowAfter
	}
	all := newRequests(s.SlowAfter)
	p.EachPlane(func(plan *controlplane.Plan) {
		c := &counter{to: all}
		plan.Wrap(controlplane.AfterAuthentication, "requests of users", c.wrap)
		plan.Work(controlplane.Work{Name: "name of the plane", Run: func(_ context.Context, plane *controlplane.Plane) error {
			name := plane.Name()
			c.plane.Store(&name)
			return nil
		}})
	})
	root, begun := p.Root(), time.Now()
	root.Feed()
	page.Page{
		Path: Path, Does: "status", Methods: []string{http.MethodGet, http.MethodHead}, Misused: "the status can only be read",
		Serve: func(w http.ResponseWriter, r *http.Request, root *controlplane.Plane) error {
			w.Header().Set("Content-Type", "application/json")
			to := json.NewEncoder(w)
			to.SetIndent("", "  ")
			_ = to.Encode(report(r.Context(), root, all, begun)) // an error says that the client went away
			return nil
		},
	}.Declare(root)
	return nil
}
