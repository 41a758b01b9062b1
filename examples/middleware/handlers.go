package main

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sailplane-dev/sailplane/pkg/middleware"
)

const (
	idHeader = "X-Request-Id"
	// closed is the file whose presence puts the server into maintenance.
	closed = "closed"
)

// requestID sees the bare request, before anything else: it gives each one an
// id, unless a proxy did, and adds the id to the answer.
func requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(idHeader) == "" {
			r.Header.Set(idHeader, rand.Text())
		}
		w.Header().Set(idHeader, r.Header.Get(idHeader))
		next.ServeHTTP(w, r)
	})
}

// notice knows the request but not yet the user: it has kubectl print a warning
// on every request for a resource while the server is closed.
func notice(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest && inMaintenance() {
			warning.AddWarning(r.Context(), "", "the server is in maintenance: read only")
		}
		next.ServeHTTP(w, r)
	})
}

// audit knows the user: it prints one line for each write that is not by the
// server itself, whether it will be allowed or not.
func audit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, info := caller(r); !middleware.Internal(r) && !readOnly(info) {
			fmt.Printf("audit: request %s: %s: %s %s\n", r.Header.Get(idHeader), u, info.Verb, info.Path)
		}
		next.ServeHTTP(w, r)
	})
}

// maintenance runs last, for allowed requests: it refuses writes while the
// server is closed, but not the server's own.
func maintenance(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, info := caller(r); middleware.Internal(r) || readOnly(info) || !inMaintenance() {
			next.ServeHTTP(w, r)
			return
		}
		middleware.Refuse(w, r, apierrors.NewServiceUnavailable("closed for maintenance"))
	})
}

// caller returns the user and the request. From the slot after authentication on,
// both are known.
func caller(r *http.Request) (name string, info *request.RequestInfo) {
	if u, ok := request.UserFrom(r.Context()); ok {
		name = u.GetName()
	}
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		info = &request.RequestInfo{}
	}
	return name, info
}

func readOnly(info *request.RequestInfo) bool {
	switch info.Verb {
	case "get", "list", "watch", "head", "options":
		return true
	}
	return false
}

func inMaintenance() bool {
	_, err := os.Stat(closed)
	return err == nil
}
