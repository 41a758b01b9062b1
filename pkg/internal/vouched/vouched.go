// Package vouched lets a server tell another one in the same process who makes a request.
// Nobody else can: what says so is in the request's context, and not in its headers.
package vouched

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

type key struct{}

type value struct {
	user.Info

	handedOn bool
}

// With returns a context of a request that a server makes as a user.
func With(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, key{}, value{u, false})
}

// HandedOn returns a context of a user's request that a server hands on, which has done for it
// what is done for every request that comes: it ends it in time, and answers for panics.
func HandedOn(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, key{}, value{u, true})
}

// IsHandedOn tells whether another server hands a request on.
func IsHandedOn(ctx context.Context) bool {
	v, _ := ctx.Value(key{}).(value)
	return v.handedOn
}

// Authenticator knows the users of requests that another server vouches for.
func Authenticator() authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		v, ok := r.Context().Value(key{}).(value)
		return &authenticator.Response{User: v.Info}, ok, nil
	})
}
