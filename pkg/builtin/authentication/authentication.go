// Package authentication has the resources of the group authentication.k8s.io
// (v1), which answer who a user is and store nothing:
//
//   - [TokenReviews] tell whose token it is
//   - [SelfSubjectReviews] tell who the caller is (kubectl auth whoami)
package authentication

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// TokenReviews is the part that serves tokenreviews: servers that receive a
// token of this plane ask it whose token it is.
type TokenReviews struct{}

// Install adds tokenreviews to the group.
func (TokenReviews) Install(p *controlplane.Plan) error {
	p.Serve(shared(), apis.Action(authenticationv1.SchemeGroupVersion, "tokenreviews", false,
		func(config controlplane.BuildConfig) func(context.Context, *authenticationv1.TokenReview) error {
			return func(ctx context.Context, r *authenticationv1.TokenReview) error {
				return reviewToken(ctx, config, r)
			}
		}))
	return nil
}

// SelfSubjectReviews is the part that serves selfsubjectreviews.
type SelfSubjectReviews struct{}

// Install adds selfsubjectreviews to the group.
func (SelfSubjectReviews) Install(p *controlplane.Plan) error {
	p.Serve(shared(), apis.Action(authenticationv1.SchemeGroupVersion, "selfsubjectreviews", false,
		func(controlplane.BuildConfig) func(context.Context, *authenticationv1.SelfSubjectReview) error {
			return func(ctx context.Context, r *authenticationv1.SelfSubjectReview) error {
				u, ok := request.UserFrom(ctx)
				if !ok {
					return apierrors.NewBadRequest("no user information available")
				}
				r.Status.UserInfo = info(u)
				return nil
			}
		}))
	return nil
}

// shared is the group, made once per process.
var shared = sync.OnceValue(func() *controlplane.API {
	gv := authenticationv1.SchemeGroupVersion
	kinds := apis.RegisterKinds(gv, &authenticationv1.TokenReview{}, &authenticationv1.SelfSubjectReview{})
	return apis.NewGroup(gv, kinds, definitions).API()
})

// reviewToken authenticates a request that has the token and nothing else.
func reviewToken(ctx context.Context, config controlplane.BuildConfig, r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if len(r.Spec.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, r.Spec.Audiences)
	}
	r.Status = authenticationv1.TokenReviewStatus{}
	// The request has no path: on a path open to all, any token would pass.
	asked := &http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + r.Spec.Token}}}
	who, ok, err := config.Authenticator.AuthenticateRequest(asked.WithContext(ctx))
	r.Status.Authenticated = ok && err == nil
	if err != nil {
		r.Status.Error = err.Error()
	}
	if !r.Status.Authenticated || who == nil {
		return nil
	}
	audiences, fits := sharedAudiences(who.Audiences, r.Spec.Audiences, config.Audiences)
	if !fits {
		r.Status = authenticationv1.TokenReviewStatus{Error: "the token is not for the audiences of the review"}
		return nil
	}
	r.Status.User, r.Status.Audiences = info(who.User), audiences
	return nil
}

// sharedAudiences returns the audiences that the token and the review share, and whether
// there are any. A review without audiences gets those of the token. A token
// without audiences is for those of the plane only.
func sharedAudiences(token, review, plane authenticator.Audiences) (authenticator.Audiences, bool) {
	if len(token) == 0 {
		token = plane
	}
	if len(review) == 0 {
		return token, true
	}
	token = token.Intersect(review)
	return token, len(token) > 0
}

func info(u user.Info) authenticationv1.UserInfo {
	i := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for name, values := range u.GetExtra() {
		if i.Extra == nil {
			i.Extra = map[string]authenticationv1.ExtraValue{}
		}
		i.Extra[name] = values
	}
	return i
}
