package controlplane

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// subresource names a sub-resource of a resource, in all of its versions.
type subresource struct {
	schema.GroupResource
	name string
}

// streams tells which requests are for sub-resources that a resource of the plan declares to
// last (Resource.LongRunning).
func (p *Plan) streams() apirequest.LongRunningRequestCheck {
	return p.declared(func(r Resource) []string { return r.LongRunning })
}

// consoles tells which requests are for sub-resources that take the verb create (Resource.Consoles).
func (p *Plan) consoles() apirequest.LongRunningRequestCheck {
	return p.declared(func(r Resource) []string { return r.Consoles })
}

// declared tells which requests are for sub-resources that are among some of those of their resource.
func (p *Plan) declared(some func(Resource) []string) apirequest.LongRunningRequestCheck {
	declared := map[subresource]bool{}
	for _, g := range p.groups() {
		for _, r := range g.resources {
			for _, name := range some(r) {
				declared[subresource{schema.GroupResource{Group: g.api.group, Resource: r.Name}, name}] = true
			}
		}
	}
	return func(_ *http.Request, info *apirequest.RequestInfo) bool {
		return info.IsResourceRequest &&
			declared[subresource{schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Subresource}]
	}
}
