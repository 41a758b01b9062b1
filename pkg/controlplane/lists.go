package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// ListFilterFunc is asked about a list or watch that the plane's authorizers did
// not allow. It returns the function that selects the objects, or nil to refuse the
// request.
type ListFilterFunc func(ctx context.Context, a authorizer.Attributes, by Authority) KeepFunc

// KeepFunc tells whether the caller may see an object of a list or watch. The
// namespace is empty for cluster-scoped objects. It is called for every object of a
// list and every event of a watch, by many goroutines at once. An error fails the
// list, or ends the watch, with status 500.
type KeepFunc func(ctx context.Context, namespace, name string) (bool, error)

// Authority decides as a plane does.
type Authority struct {
	// Authorizer decides what a user may do.
	Authorizer authorizer.Authorizer
	// Rules lists what a user may do in a namespace, as far as the plane's authorizers
	// can list it.
	Rules authorizer.RuleResolver
}

// filteredAnnotation marks filtered requests in the audit log.
const filteredAnnotation = "authorization.sailplane.dev/filtered"

// FilterLists lets f decide on lists and watches of the resources that the plane's
// authorizers do not allow. Lists of other servers cannot be filtered and stay
// refused, nor can those of a resource that shares the storage of another one.
// Deletes of collections are never let through.
func (p *Plan) FilterLists(f ListFilterFunc, resources ...schema.GroupResource) {
	for _, r := range resources {
		p.filters = append(p.filters, named[listFilter]{p.part, r.String(), listFilter{r, f}})
	}
}

type listFilter struct {
	resource schema.GroupResource
	decide   ListFilterFunc
}

// checkFilters finds resources that are filtered twice or that cannot be.
func (p *Plan) checkFilters() []error {
	errs := duplicates("list filter", p.filters)
	for _, f := range p.filters {
		r := f.value.resource
		if p.has(r.Group, func(s Resource) bool { return s.View && !s.Elsewhere && s.Name == r.Resource }) {
			errs = append(errs, fmt.Errorf(
				"part %q: lists of %s cannot be filtered: it shows the objects of another resource: name that one",
				f.part, f.name))
		}
	}
	return errs
}

// lists lets requests through that the authorizers refuse as a whole.
type lists struct {
	decide map[schema.GroupResource]ListFilterFunc
	rules  authorizer.RuleResolver
}

// lists is nil when no part filters any.
func (p *Plane) lists() *lists {
	if len(p.plan.filters) == 0 {
		return nil
	}
	l := &lists{decide: map[schema.GroupResource]ListFilterFunc{}, rules: p.rules()}
	for _, f := range p.plan.filters {
		l.decide[f.value.resource] = f.value.decide
	}
	return l
}

// authorizer allows lists and watches that will be filtered. It is for requests
// only: an access review of the whole list still says no.
func (l *lists) authorizer(a authorizer.Authorizer) authorizer.Authorizer {
	if l == nil {
		return a
	}
	return authorizer.AuthorizerFunc(func(ctx context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := a.Authorize(ctx, asked)
		filter := store.FilterFrom(ctx)
		if decision == authorizer.DecisionAllow || err != nil || filter == nil {
			return decision, reason, err
		}
		keep := l.decide[filter.Resource](ctx, asked, Authority{a, l.rules})
		if keep == nil {
			return decision, reason, nil
		}
		filter.Keep(store.KeepFunc(keep))
		audit.AddAuditAnnotation(ctx, filteredAnnotation, "true")
		return authorizer.DecisionAllow, "only the objects that the user may get", nil
	})
}

// wrap goes around authorization: it gives the request a filter, and refuses
// answers that should have been filtered and were not.
func (l *lists) wrap(h http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	if l == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.Subresource != "" || info.Verb != "list" && info.Verb != "watch" {
			h.ServeHTTP(w, r)
			return
		}
		resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		if l.decide[resource] == nil {
			h.ServeHTTP(w, r)
			return
		}
		filter := &store.Filter{Resource: resource}
		r = r.WithContext(store.WithFilter(r.Context(), filter))
		g := &guard{ResponseWriter: w, filter: filter, header: w.Header().Clone(), refuse: func() {
			attributes, err := genericapifilters.GetAuthorizerAttributes(r.Context())
			if err != nil {
				responsewriters.InternalError(w, r, err)
				return
			}
			responsewriters.Forbidden(attributes, w, r, "its lists cannot be filtered", serializer)
		}}
		h.ServeHTTP(responsewriter.WrapForHTTP1Or2(g), r)
	})
}

// guard refuses answers that should have been filtered and were not, such as
// those of another API server.
type guard struct {
	http.ResponseWriter
	filter  *store.Filter
	header  http.Header // as it was before the answer
	refuse  func()
	refused bool
	begun   bool // the answer was let through
}

var (
	_ http.Flusher  = &guard{}
	_ http.Hijacker = &guard{}
)

// WriteHeader implements http.ResponseWriter. Errors are let through.
func (g *guard) WriteHeader(code int) {
	switch {
	case g.begun:
		g.ResponseWriter.WriteHeader(code)
	case g.refused:
	case code >= http.StatusBadRequest || !g.filter.Pending():
		g.begun = true
		g.ResponseWriter.WriteHeader(code)
	case code >= http.StatusOK:
		g.refused = true
		clear(g.Header())
		maps.Copy(g.Header(), g.header)
		g.refuse()
	}
}

// Write implements http.ResponseWriter.
func (g *guard) Write(b []byte) (int, error) {
	if !g.begun {
		g.WriteHeader(http.StatusOK)
	}
	if g.refused {
		return len(b), nil
	}
	return g.ResponseWriter.Write(b)
}

// Unwrap implements responsewriter.UserProvidedDecorator. Nothing bypasses the
// guard through it: the guard itself writes, flushes and hijacks.
func (g *guard) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// Flush implements http.Flusher, as watches need.
func (g *guard) Flush() {
	if g.refused || !g.begun && g.filter.Pending() {
		return
	}
	// A writer that cannot flush writes at the end.
	_ = http.NewResponseController(g.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker, as watches over WebSocket need.
func (g *guard) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if g.refused || g.filter.Pending() {
		return nil, nil, errors.New("the connection cannot be hijacked: its answer must be filtered")
	}
	return http.NewResponseController(g.ResponseWriter).Hijack()
}
