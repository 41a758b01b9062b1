package upstream

import (
	"slices"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
)

// Routes keeps what routes have in common in all planes: their documents, and the
// expressions that go-restful compiles for each of them, two kilobytes or more.
// https://github.com/emicklei/go-restful/blob/v3.13.0/path_expression.go
type Routes struct{ first sync.Map }

// Share makes routes refer to the documents and expressions of the first routes
// with the key, which must stand for the same routes. Each plane keeps its own
// functions.
func (r *Routes) Share(key string, routes []restful.Route) {
	first := slices.Clone(routes)
	for i := range first {
		first[i].Function = nil
	}
	shared, _ := r.first.LoadOrStore(key, first)
	for i, route := range shared.([]restful.Route) {
		route.Function = routes[i].Function
		routes[i] = route
	}
}

// ShareAll does the same with all routes of a container. Only the same routes may
// ever be added under the same paths.
func (r *Routes) ShareAll(c *restful.Container) {
	for _, ws := range c.RegisteredWebServices() {
		r.Share(ws.RootPath(), ws.Routes())
	}
}
