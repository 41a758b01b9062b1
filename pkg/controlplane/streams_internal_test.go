package controlplane

import (
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestStreams: a sub-resource is a stream, or a console, where its resource says so, and nowhere else.
func TestStreams(t *testing.T) {
	t.Parallel()
	p := &Plan{}
	p.Serve(NewAPI("fleet.example.com", []string{"v1"}, APIConfig{}), Resource{
		Name: "machines", LongRunning: []string{"log", "console"}, Consoles: []string{"console"},
	})
	streams, consoles := p.streams(), p.consoles()
	for name, c := range map[string]struct {
		info request.RequestInfo
		want bool
	}{
		"declared":        {request.RequestInfo{IsResourceRequest: true, APIGroup: "fleet.example.com", APIVersion: "v1", Resource: "machines", Subresource: "log"}, true},
		"console":         {request.RequestInfo{IsResourceRequest: true, APIGroup: "fleet.example.com", APIVersion: "v1", Resource: "machines", Subresource: "console"}, true},
		"resource":        {request.RequestInfo{IsResourceRequest: true, APIGroup: "fleet.example.com", APIVersion: "v1", Resource: "machines"}, false},
		"other":           {request.RequestInfo{IsResourceRequest: true, APIGroup: "fleet.example.com", APIVersion: "v1", Resource: "machines", Subresource: "status"}, false},
		"other resource":  {request.RequestInfo{IsResourceRequest: true, APIGroup: "fleet.example.com", APIVersion: "v1", Resource: "fleets", Subresource: "log"}, false},
		"other group":     {request.RequestInfo{IsResourceRequest: true, APIVersion: "v1", Resource: "machines", Subresource: "log"}, false},
		"not a resource":  {request.RequestInfo{APIGroup: "fleet.example.com", Resource: "machines", Subresource: "log"}, false},
		"another version": {request.RequestInfo{IsResourceRequest: true, APIGroup: "fleet.example.com", APIVersion: "v2", Resource: "machines", Subresource: "log"}, true},
	} {
		if got := streams(nil, &c.info); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		if got := consoles(nil, &c.info); got != (name == "console") {
			t.Errorf("%s: is it a console: %t", name, got)
		}
	}
}
