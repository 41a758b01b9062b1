package aggregator

import (
	"mime"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// ownAgent ends the user agent of the aggregator's own clients, whose requests do
// not wait for the registration that they make.
const ownAgent = " (aggregator)"

func asAggregator(c *rest.Config) *rest.Config {
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	c.UserAgent += ownAgent
	return c
}

// wrap registers the APIServices before the first request whose answer needs
// them. A plane writes one for each of its group versions, and most planes never
// get such a request: groups are served without them, and aggregated discovery
// takes groups from the servers.
func (r *registration) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if needsAPIServices(req) && !strings.HasSuffix(req.UserAgent(), ownAgent) {
			select {
			case <-r.begun:
				if err := r.await(req.Context()); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
					return
				}
			default: // the plane starts
			}
		}
		next.ServeHTTP(w, req)
	})
}

// needsAPIServices tells whether the answer to a request is made of APIServices: requests for
// these, for the index of paths, and for the lists of groups or of a group's versions.
func needsAPIServices(r *http.Request) bool {
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
		return info.APIGroup == apiregistrationv1.GroupName
	}
	switch path := strings.Trim(r.URL.Path, "/"); path {
	case "", "index.html":
		return true
	case "apis":
		return !aggregated(r.Header.Get("Accept"))
	default:
		return strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 1
	}
}

// aggregated tells whether a client prefers aggregated discovery, as current
// clients do.
func aggregated(accept string) bool {
	first, _, _ := strings.Cut(accept, ",")
	mediaType, parameters, err := mime.ParseMediaType(first)
	return err == nil && mediaType == "application/json" &&
		parameters["g"] == "apidiscovery.k8s.io" && parameters["v"] == "v2" && parameters["as"] == "APIGroupDiscoveryList"
}
