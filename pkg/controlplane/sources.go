package controlplane

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

// sourcesPath tells how what resources are read from is. It is no part of /readyz: the plane is
// ready without them.
const sourcesPath = "/readyz/sources"

// Source is the condition of what a resource is read from, in place of the plane's storage: a
// function, a database of its own, another server.
type Source struct {
	Resource schema.GroupResource
	// Asked tells whether it was asked since the plane started. If not, nothing else is known.
	Asked bool
	// Problem is why it failed when it was last asked. Empty: it did not.
	Problem string
	// Since is when it began to answer, or to fail.
	Since time.Time
}

// String is a line for people.
func (s Source) String() string {
	since := s.Since.UTC().Format(time.RFC3339)
	switch {
	case !s.Asked:
		return fmt.Sprintf("[+]%s was not asked yet", s.Resource)
	case s.Problem != "":
		return fmt.Sprintf("[-]%s failed since %s: %s", s.Resource, since, s.Problem)
	default:
		return fmt.Sprintf("[+]%s ok since %s", s.Resource, since)
	}
}

// sources are those of a plane.
type sources struct {
	mu  sync.Mutex
	all []*Source
}

// Source declares what a resource is read from, in place of the plane's storage. Call the
// function that it returns with the error of each read, nil if it was good: it is a condition at
// /readyz/sources and in [Plane.Sources], and the metric sailplane_source_reads_total.
func (c BuildConfig) Source(resource schema.GroupResource) (report func(error)) {
	if c.sources == nil {
		return func(error) {}
	}
	one := &Source{Resource: resource}
	c.sources.mu.Lock()
	defer c.sources.mu.Unlock()
	c.sources.all = append(c.sources.all, one)
	return func(err error) {
		metrics.SourceRead(resource.String(), err)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		c.sources.mu.Lock()
		defer c.sources.mu.Unlock()
		if !one.Asked || (one.Problem == "") != (problem == "") {
			one.Since = time.Now()
		}
		one.Asked, one.Problem = true, problem
	}
}

// list returns the sources by name.
func (s *sources) list() []Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Source
	for _, one := range s.all {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Source) int { return strings.Compare(a.Resource.String(), b.Resource.String()) })
	return all
}

// Sources is how what resources of the plane are read from is, in place of its storage.
func (p *Plane) Sources() []Source { return p.sources.list() }

// health answers [sourcesPath] as a check of the API server does: 500 while a source fails, and
// which, and why.
func (s *sources) health(w http.ResponseWriter, _ *http.Request) {
	var text strings.Builder
	code := http.StatusOK
	for _, one := range s.list() {
		if one.Problem != "" {
			code = http.StatusInternalServerError
		}
		fmt.Fprintln(&text, one)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text.String())) // an error says that the client went away
}
