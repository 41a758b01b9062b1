package controlplane

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// Handle serves a path of the part's own, "/export", beside the API. A path that ends with a
// slash serves all that begin with it. Requests come through the whole chain: who may use it is
// decided by rules with nonResourceURLs, and the verbs get, post, put, patch and delete. The path
// is listed in the index at /.
//
// Paths that belong to the API, to what describes it, and to health checks cannot be taken, and
// none twice.
func (p *Plan) Handle(path string, h http.Handler) {
	p.handlers = append(p.handlers, named[http.Handler]{p.part, path, h})
}

// reserved are the first segments of paths that a part cannot take.
func reserved() []string {
	return []string{"", "api", "apis", "openapi", "version", "healthz", "livez", "readyz", "metrics"}
}

func (p *Plan) checkHandlers() []error {
	errs := duplicates("path", p.handlers)
	for _, h := range p.handlers {
		first, _, _ := strings.Cut(strings.TrimPrefix(h.name, "/"), "/")
		var err error
		switch clean := path.Clean(h.name); {
		case h.name == "": // it was said
		case h.name != clean && h.name != clean+"/" || clean[0] != '/':
			err = errors.New("want a path like /export or /export/, without dots and double slashes")
		case slices.Contains(reserved(), first):
			err = errors.New("it is taken by the API server itself")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("part %q: Handle %q: %w", h.part, h.name, err))
		}
	}
	return errs
}

// handle serves a path of a part.
func (p *Plane) handle(path string, h http.Handler) {
	if mux := p.top.Handler.NonGoRestfulMux; strings.HasSuffix(path, "/") {
		mux.HandlePrefix(path, h)
	} else {
		mux.Handle(path, h)
	}
}
