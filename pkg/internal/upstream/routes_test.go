package upstream

import (
	"testing"

	restful "github.com/emicklei/go-restful/v3"
)

// TestShareRoutes: routes share their documents with those that came first, and keep
// their functions.
func TestShareRoutes(t *testing.T) {
	t.Parallel()
	called := ""
	made := func(name string) *restful.Container {
		ws := new(restful.WebService).Path("/apis/fruit")
		ws.Route(ws.GET("/{name}").To(func(*restful.Request, *restful.Response) { called = name }).
			Param(ws.PathParameter("name", "of a fruit")))
		return restful.NewContainer().Add(ws)
	}
	route := func(c *restful.Container) *restful.Route { return &c.RegisteredWebServices()[0].Routes()[0] }
	first, second := made("first"), made("second")
	var routes Routes
	routes.ShareAll(first)
	routes.ShareAll(second)
	if route(first).ParameterDocs[0] != route(second).ParameterDocs[0] {
		t.Error("the second has parameters of its own")
	}
	for name, c := range map[string]*restful.Container{"first": first, "second": second} {
		if route(c).Function(nil, nil); called != name {
			t.Errorf("the route of the %s calls the function of the %s", name, called)
		}
	}
}
