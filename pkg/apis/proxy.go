package apis

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Proxy adds a sub-resource, "proxy", that hands requests of every method on to an HTTP
// server, upgrades included: what is below the sub-resource, /proxy/a/b, comes to /a/b below
// the URL that to returns. The transport may be nil, for http.DefaultTransport. As with
// pods/proxy, links in HTML that comes back lead through the proxy.
//
// The server learns nothing of who asks: it gets neither the Authorization header nor tokens
// in WebSocket protocols, nor the headers that begin with X-Remote- and Impersonate-. The
// query and the other headers, cookies included, it gets.
//
// The verbs are those of Kubernetes: get for GET and HEAD, create for POST, and so on.
// Admission sees a CONNECT. A user may have 256 such requests running, and an upgraded
// connection on which nothing comes or goes for four hours ends.
func Proxy[T any](name string, to func(ctx context.Context, obj *T) (*url.URL, http.RoundTripper, error)) Option {
	return typed[T]("Proxy", func(d *Definition) {
		d.addConnection(name, proxied(func(
			ctx context.Context, obj runtime.Object, below string, answer rest.Responder,
		) (http.Handler, error) {
			location, transport, err := to(ctx, hubType[T](obj))
			if err != nil {
				return nil, err
			}
			if location == nil || location.Host == "" {
				return nil, errors.New("the function of the proxy returned no URL with a host")
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				target := *location
				target.Path, target.RawPath, target.RawQuery = utilnet.JoinPreservingTrailingSlash(location.Path, below), "", r.URL.RawQuery
				h := proxy.NewUpgradeAwareHandler(&target, transport, true, false, proxy.NewErrorResponder(answer))
				h.UseLocationHost = true
				h.FlushInterval = -1 // at once
				h.ServeHTTP(w, r)
			}), nil
		}))
	})
}

// Handle adds a sub-resource that an http.Handler serves, for every method: [Proxy] to a
// server that is part of the program. The path of its requests is what is below the
// sub-resource, "/" if nothing is, and they have no credentials either; the context says who
// asks (k8s.io/apiserver/pkg/endpoints/request.UserFrom).
func Handle[T any](name string, handler func(ctx context.Context, obj *T) (http.Handler, error)) Option {
	return typed[T]("Handle", func(d *Definition) {
		d.addConnection(name, proxied(func(ctx context.Context, obj runtime.Object, below string, _ rest.Responder) (http.Handler, error) {
			h, err := handler(ctx, hubType[T](obj))
			if err != nil {
				return nil, err
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				u := *r.URL
				u.Path, u.RawPath = below, ""
				r = r.WithContext(r.Context())
				r.URL, r.RequestURI = &u, u.RequestURI()
				h.ServeHTTP(w, r)
			}), nil
		}))
	})
}

// proxied is a connection to a handler that gets no credentials, and the path below the
// sub-resource, which leads nowhere else.
func proxied(
	handler func(ctx context.Context, obj runtime.Object, below string, answer rest.Responder) (http.Handler, error),
) connection {
	return connection{
		methods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
		},
		subpath: "path",
		options: func() runtime.Object { return &corev1.PodProxyOptions{} },
		handler: func(ctx context.Context, obj, options runtime.Object, answer rest.Responder) (http.Handler, error) {
			h, err := handler(ctx, obj, within(options.(*corev1.PodProxyOptions).Path), answer)
			if err != nil {
				return nil, err
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, withoutCredentials(r))
			}), nil
		},
	}
}

// within is a path that does not lead above where it begins.
func within(below string) string {
	clean := path.Clean("/" + below)
	if strings.HasSuffix(below, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// bearerProtocol begins the WebSocket protocol in which browsers send a token.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/authentication/request/websocket/protocol.go#L30
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// withoutCredentials is the request without what says who makes it.
func withoutCredentials(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if name == "Authorization" || strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") {
			delete(r.Header, name)
		}
	}
	const protocols = "Sec-Websocket-Protocol"
	if given := r.Header.Values(protocols); len(given) > 0 {
		kept := slices.DeleteFunc(strings.Split(strings.Join(given, ","), ","), func(p string) bool {
			return strings.HasPrefix(strings.TrimSpace(p), bearerProtocol)
		})
		r.Header.Set(protocols, strings.TrimSpace(strings.Join(kept, ",")))
		if len(kept) == 0 {
			r.Header.Del(protocols)
		}
	}
	return r
}
