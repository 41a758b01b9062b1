package aggregator

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// guard is in front of the proxy to the servers of remote APIServices. It lets through
// what the other server understands as it was authorized here, without what says who
// the client is: the proxy adds that.
type guard struct {
	services *availability
	plane    *controlplane.Plane
}

// wrap goes right in front of the API.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.remote(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		if f := store.FilterFrom(r.Context()); f != nil && f.Pending() {
			forbid(w, r)
			return
		}
		if why := ambiguous(r); why != "" {
			responsewriters.ErrorNegotiated(
				apierrors.NewBadRequest("the path "+why+": the server of the group could read another path than was authorized"),
				aggregatorscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		next.ServeHTTP(w, anonymized(r))
	})
}

// forbid answers a list that this server cannot filter as if no list were filtered.
func forbid(w http.ResponseWriter, r *http.Request) {
	attributes, err := genericapifilters.GetAuthorizerAttributes(r.Context())
	if err != nil {
		responsewriters.InternalError(w, r, err)
		return
	}
	responsewriters.Forbidden(attributes, w, r, "its lists cannot be filtered", aggregatorscheme.Codecs)
}

// remote tells whether another server may answer a path.
func (g *guard) remote(path string) bool {
	name, ok := apiServiceOf(path)
	if !ok {
		return false
	}
	if s, err := g.services.lister.Get(name); err == nil {
		return s.Spec.Service != nil
	}
	// The proxy learns a moment after the lister that one is deleted.
	if _, was := g.services.seen.Get(name); !was {
		return false
	}
	all := g.plane.GroupVersions()
	for _, d := range g.plane.Dynamic() {
		all = append(all, d.GroupVersions()...)
	}
	for _, gv := range all {
		if apiService(gv).Name == name {
			return false
		}
	}
	return true
}

// apiServiceOf returns the name of the APIService that a path is in.
func apiServiceOf(path string) (string, bool) {
	if path == "/api" || strings.HasPrefix(path, "/api/") {
		return "v1.", true
	}
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return "", false
	}
	group, rest, ok := strings.Cut(rest, "/")
	version, _, _ := strings.Cut(rest, "/")
	return version + "." + group, ok && version != ""
}

// ambiguous says why a path could be read in two ways, empty if it cannot: the proxy
// sends the decoded path, which servers clean, or cut where this one does not.
func ambiguous(r *http.Request) string {
	escaped, path := strings.ToLower(r.URL.EscapedPath()), r.URL.Path
	switch {
	case strings.Contains(escaped, "%2f"), strings.Contains(escaped, "%5c"), strings.Contains(path, `\`):
		return "has an encoded slash or a backslash"
	case strings.Contains(path, ";"):
		return "has a semicolon"
	case !utf8.ValidString(path), strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "has a control character, or is not UTF-8"
	}
	segments := strings.Split(strings.TrimSuffix(path, "/")[1:], "/")
	below := 0 // a sub-resource, and what is below it, such as a URL to proxy to
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
		below = max(0, len(info.Parts)-2)
	}
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-below {
			return fmt.Sprintf("has a segment %q", s)
		}
	}
	return ""
}

// anonymized returns the request without credentials, and without every spelling of the
// headers that say who the user is.
func anonymized(r *http.Request) *http.Request {
	clean := r.WithContext(r.Context())
	clean.Header = make(http.Header, len(r.Header))
	for name, values := range r.Header {
		if !identifies(name) {
			clean.Header[name] = values
		}
	}
	const protocols = "Sec-Websocket-Protocol"
	if all := clean.Header[protocols]; len(all) > 0 {
		var kept []string
		for p := range strings.SplitSeq(strings.Join(all, ","), ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, "base64url.bearer.authorization.") {
				kept = append(kept, p)
			}
		}
		clean.Header.Del(protocols)
		if len(kept) > 0 {
			clean.Header.Set(protocols, strings.Join(kept, ", "))
		}
	}
	if httpstream.IsUpgradeRequest(r) { // it could name the user's headers, to have a proxy drop them
		clean.Header.Set("Connection", "Upgrade")
	}
	return clean
}

// identifies tells whether a header may say who the client is. Servers that hand
// headers to programs as variables take "_" and "-" for the same.
func identifies(header string) bool {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		}
		return '-'
	}, header)
	switch name {
	case "authorization", "proxy-authorization", "cookie", "cookie2", "x-auth-token", "x-access-token", "x-api-key",
		"client-cert", "client-cert-chain", "x-client-cert", "x-forwarded-client-cert", "x-forwarded-access-token",
		"x-forwarded-user", "x-forwarded-groups", "x-forwarded-email", "x-forwarded-preferred-username":
		return true
	}
	for _, prefix := range []string{"x-remote-", "impersonate-", "x-ssl-client", "ssl-client"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
