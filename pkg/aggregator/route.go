package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// router is in front of what the plane serves itself. It hands requests to the servers of
// remote APIServices, as they were authorized here.
type router struct {
	genericapiserver.DelegationTarget
	plane   *controlplane.Plane
	remotes *remotes
	local   http.Handler
}

func newRouter(delegate genericapiserver.DelegationTarget, plane *controlplane.Plane, r *remotes) *router {
	return &router{delegate, plane, r, delegate.UnprotectedHandler()}
}

// UnprotectedHandler implements genericapiserver.DelegationTarget.
func (x *router) UnprotectedHandler() http.Handler { return x }

// ServeHTTP implements http.Handler.
func (x *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	routes := *x.remotes.routes.Load()
	if len(routes) == 0 {
		x.local.ServeHTTP(w, r)
		return
	}
	gv, ok := groupVersionOf(r.URL.Path)
	if to := routes[gv]; to != nil && ok {
		x.forward(w, r, gv, to.server)
		return
	}
	if ok && gv.Version == "" && r.Method == http.MethodGet && x.remotes.serves(gv.Group) {
		if group := x.plane.APIGroup(r, gv.Group); group != nil {
			responsewriters.WriteObjectNegotiated(aggregatorscheme.Codecs, negotiation.DefaultEndpointRestrictions,
				schema.GroupVersion{}, w, r, http.StatusOK, group, false)
			return
		}
	}
	x.local.ServeHTTP(w, r)
}

// forward hands a request on.
func (x *router) forward(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, s *server) {
	if f := store.FilterFrom(r.Context()); f != nil && f.Pending() {
		forbid(w, r)
		return
	}
	if err := x.refused(r, gv, s); err != nil {
		answerError(w, r, err)
		return
	}
	if err := x.guarded(r, s); err != nil {
		answerError(w, r, err)
		return
	}
	who, ok := request.UserFrom(r.Context())
	if !ok {
		answerError(w, r, apierrors.NewInternalError(fmt.Errorf("the request has no user")))
		return
	}
	at, err := s.resolve()
	if err != nil {
		signal.Wake(s.look)
		answerError(w, r, unavailable(gv, s))
		return
	}
	to := *r.URL
	to.Scheme, to.Host, to.User, to.Opaque = at.Scheme, at.Host, nil, ""
	to.Path, to.RawPath = at.Path+r.URL.Path, ""
	if strings.ContainsAny(to.RawQuery, ";%") { // what is read in two ways, or not at all
		to.RawQuery = r.URL.Query().Encode()
	}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	h := &hop{to: &to, as: who, via: via(r, x.remotes.id), auditID: audit.GetAuditIDTruncated(ctx), lasts: lasts(r), end: end}
	if !s.hops.enter(h) {
		answerError(w, r, apierrors.NewTooManyRequests(fmt.Sprintf("%d requests are at server %s, which is the limit", maxHops, s), 1))
		return
	}
	defer s.hops.leave(h)
	utilflowcontrol.RequestDelegated(ctx)
	x.hand(w, r.WithContext(context.WithValue(ctx, hopKey{}, h)), s)
}

// refused returns why a request is not handed on.
func (x *router) refused(r *http.Request, gv schema.GroupVersion, s *server) error {
	if why := ambiguous(r); why != "" {
		return apierrors.NewBadRequest("the path " + why + ": the server of the group could read another path than was authorized")
	}
	if peer := s.peer.Load(); cameFrom(r, x.remotes.id) || peer != nil && *peer != "" && cameFrom(r, *peer) {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusLoopDetected, Reason: "LoopDetected",
			Message: fmt.Sprintf("server %s hands requests for %s back to where they came from: "+
				"delete APIService %q there or here", s, gv, nameOf(gv)),
		}}
	}
	if s.state.Load().available(gv) != nil {
		return unavailable(gv, s)
	}
	return nil
}

// unavailable is the answer for a server that cannot be used. Where it is, and what it said,
// is for those who may read its APIService. It does not ask clients to try again: they would
// hold up what they do for others.
func unavailable(gv schema.GroupVersion, s *server) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf(
		"server %s of %s is not available: condition Available of APIService %q says why", s, gv, nameOf(gv)))
}

func badGateway(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: "BadGateway", Message: message,
	}}
}

func answerError(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, aggregatorscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
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

// via is an element of header Via (RFC 9110, section 7.6.3): a request that comes back to where
// it was is not handed on again.
func via(r *http.Request, id string) string {
	version := strconv.Itoa(r.ProtoMajor)
	if r.ProtoMajor == 1 {
		version += "." + strconv.Itoa(r.ProtoMinor)
	}
	return version + " " + id
}

// cameFrom tells whether a request was handed on by a server.
func cameFrom(r *http.Request, id string) bool {
	return slices.ContainsFunc(r.Header["Via"], func(via string) bool { return strings.Contains(via, id) })
}

// name has answers to other servers of this kind say who answers.
func (r *remotes) name(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header["Via"] != nil {
			w.Header().Set("Via", r.id)
		}
		next.ServeHTTP(w, req)
	})
}

// lasts tells whether a request for another server may take as long as it likes: a watch, an
// upgraded one, and what streams in Kubernetes.
func lasts(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	return ok && (info.Verb == "watch" || streams(r, info))
}

// streams tells whether a request is for a stream, and no watch.
func streams(r *http.Request, info *request.RequestInfo) bool {
	if !info.IsResourceRequest {
		return false
	}
	return streamed(info.Subresource) || httpstream.IsUpgradeRequest(r)
}

// streamed tells whether a sub-resource is a stream in Kubernetes.
func streamed(subresource string) bool {
	switch subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}
