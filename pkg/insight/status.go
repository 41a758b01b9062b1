// Package insight lets an operator look into a running server: who asks most, what
// was slow, what is stored, and what takes memory. Everything that it keeps is
// bounded, however many users there are.
package insight

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
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
	root, page := p.Root(), &page{requests: all, begun: time.Now()}
	root.Feed()
	root.Handle(Path, page)
	root.Work(controlplane.Work{Name: "status", Run: func(_ context.Context, plane *controlplane.Plane) error {
		page.root.Store(plane)
		return nil
	}})
	return nil
}

// page answers with the report.
type page struct {
	requests *requests
	begun    time.Time
	root     atomic.Pointer[controlplane.Plane] // nil before it has work
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	plane := p.root.Load()
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "",
			"the status can only be read", 0, true))
		return
	case plane == nil:
		w.Header().Set("Retry-After", "1")
		refuse(w, r, apierrors.NewServiceUnavailable("the server is starting"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	to := json.NewEncoder(w)
	to.SetIndent("", "  ")
	_ = to.Encode(p.report(r.Context(), plane)) // an error says that the client went away
}

// refuse answers with an error as the API does.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}
