package controlplane

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// A query longer than longQuery is parsed only when the caller is known, but for a
// field selector of at most shortSelector: 16 KiB of label selector take 10 ms and
// 5 MB, once for the RequestInfo and once more for the audit of a failed authentication.
const (
	longQuery     = 1 << 10
	shortSelector = 256
)

// brief resolves requests with long queries without most of the query: it knows
// whether they watch, and no long selectors.
type brief struct {
	apirequest.RequestInfoResolver
}

// NewRequestInfo implements request.RequestInfoResolver.
func (b brief) NewRequestInfo(r *http.Request) (*apirequest.RequestInfo, error) {
	if len(r.URL.RawQuery) > longQuery {
		short := *r.URL
		short.RawQuery = shortened(r.URL.RawQuery)
		r = r.WithContext(r.Context())
		r.URL = &short
	}
	return b.RequestInfoResolver.NewRequestInfo(r)
}

// shortened is what decides the verb and the name in a query: of each parameter the
// first value, as in upstream's resolver.
func shortened(query string) string {
	var kept []string
	seen := map[string]bool{}
	for parameter := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(parameter, "=")
		if len(key) > shortSelector || strings.Contains(parameter, ";") {
			continue
		}
		name, err := url.QueryUnescape(key)
		if err != nil || name != "watch" && name != "fieldSelector" || seen[name] {
			continue
		}
		if _, err := url.QueryUnescape(value); err != nil {
			continue
		}
		seen[name] = true
		if len(value) <= shortSelector {
			kept = append(kept, parameter)
		} else if name == "watch" {
			kept = append(kept, "watch=true") // which is all but "0" and "false"
		}
	}
	return strings.Join(kept, "&")
}

// resolved parses what brief left out.
func resolved(h http.Handler, resolver apirequest.RequestInfoResolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) > longQuery {
			info, err := resolver.NewRequestInfo(r)
			if err != nil {
				responsewriters.InternalError(w, r, fmt.Errorf("failed to create RequestInfo: %w", err))
				return
			}
			r = r.WithContext(apirequest.WithRequestInfo(r.Context(), info))
		}
		h.ServeHTTP(w, r)
	})
}
