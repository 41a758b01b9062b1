package controlplane

import (
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
)

// withBodyLimits bounds the bodies of requests for resources, but for those of the
// plane's own clients.
func withBodyLimits(next http.Handler, checker *bodies.Checker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && !loopback.From(r.Context()) {
			if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
				checker.Guard(r)
			}
		}
		next.ServeHTTP(w, r)
	})
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
