package controlplane

import (
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/tied"
)

// withBodyLimits bounds the bodies of requests for resources, but for those of the
// plane's own clients, and has what is large in the plane's own storage wait for its
// turn, those of the plane's own clients too: controllers compute for who wrote a CRD.
// Streams have neither bound, and their connections end with them.
// Who hands requests on to others takes turns where it reads what is in them.
func (c *chain) withBodyLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		if c.streams(r, info) { // what a body is, and how long it is, only who reads it knows
			tied.Handler(next).ServeHTTP(w, r)
			return
		}
		var arrived func(int64)
		if info.Verb != "watch" {
			of := c.turns.Of
			if loopback.From(r.Context()) {
				of = c.turns.Own
			}
			turn := of(c.caller(r))
			defer turn.End()
			r = r.WithContext(turn.With(r.Context()))
			if c.stored(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) {
				arrived = func(bytes int64) { turn.TakeFor(r.Context(), bytes) }
			}
		}
		if r.Method != http.MethodGet && !loopback.From(r.Context()) {
			c.bodies.Guard(r, arrived)
		}
		next.ServeHTTP(w, r)
	})
}

// caller is who shares with others what the planes of a server have together: a user of
// a plane, or all service accounts of one of its namespaces. Nobody is known by an empty name.
func (c *chain) caller(r *http.Request) string {
	name := ""
	if user, ok := request.UserFrom(r.Context()); ok {
		name = user.GetName()
	}
	return c.plane + "/" + callers.Of(name) // no plane has a slash in its name
}

// typeOf finds the Go type of a kind that a link of the plane serves.
func (p *Plane) typeOf(kind schema.GroupVersionKind) reflect.Type {
	for _, g := range p.plan.groups() {
		if g.api.group != kind.Group {
			continue
		}
		if s, err := g.api.scheme(); err == nil && s.AllKnownTypes()[kind] != nil {
			return s.AllKnownTypes()[kind]
		}
	}
	if t := scheme.Scheme.AllKnownTypes()[kind]; t != nil {
		return t
	}
	for _, l := range p.links {
		if l.Server == p.groupsServer || l.Schemes == nil {
			continue
		}
		schemes, err := l.Schemes()
		if err != nil {
			continue // what needs them says so
		}
		for _, s := range schemes {
			if t := s.AllKnownTypes()[kind]; t != nil {
				return t
			}
		}
	}
	return nil
}
