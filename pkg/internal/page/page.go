// Package page has what the pages of a server share that are no part of the API: a path of the root
// plane, for the callers whom the authorizer of that plane lets get it.
package page

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Page is a page on a path of the root plane.
type Page struct {
	Path    string
	Does    string   // what the server does for it, as the name of its work
	Methods []string // of requests
	Misused string   // says what the methods are, to a request with another one
	Alone   *Alone   // nil: any number of requests at once

	// Serve answers a request. Its error is answered as the API does, one without a status as an
	// internal one: it has sent nothing then.
	Serve func(w http.ResponseWriter, r *http.Request, root *controlplane.Plane) error
}

// Alone has a page serve one request at a time, which may take long.
type Alone struct {
	Busy  string // says to another request why it has to wait
	Retry int    // seconds
}

// Declare adds the page to the root plane.
func (p Page) Declare(root *controlplane.Plan) {
	h := &handler{Page: p}
	root.Handle(p.Path, h)
	if p.Alone != nil {
		root.LongRunning(func(r *http.Request, _ *apirequest.RequestInfo) bool { return r.URL.Path == p.Path })
	}
	root.Work(controlplane.Work{Name: p.Does, Run: func(_ context.Context, plane *controlplane.Plane) error {
		h.root.Store(plane)
		return nil
	}})
}

type handler struct {
	Page
	root atomic.Pointer[controlplane.Plane] // nil before it has work
	busy atomic.Bool
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		Refuse(w, r, err)
	}
}

// Refuse answers a request with an error as the API does, one without a status as an internal one.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		err = apierrors.NewInternalError(err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// OnlyBy returns an error for a request that has another method than those.
func OnlyBy(w http.ResponseWriter, r *http.Request, misused string, methods ...string) error {
	if slices.Contains(methods, r.Method) {
		return nil
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "", misused, 0, true)
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	root := h.root.Load()
	if err := OnlyBy(w, r, h.Misused, h.Methods...); err != nil {
		return err
	}
	switch {
	case root == nil:
		w.Header().Set("Retry-After", "1")
		return apierrors.NewServiceUnavailable("the server is starting")
	case h.Alone == nil:
	case h.busy.CompareAndSwap(false, true):
		defer h.busy.Store(false)
	default:
		return apierrors.NewTooManyRequests(h.Alone.Busy, h.Alone.Retry)
	}
	return h.Serve(w, r, root)
}
