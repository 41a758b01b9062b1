// Package authorization has the resources of the group authorization.k8s.io
// (v1), which answer what a user may do and store nothing:
//
//   - [SubjectAccessReviews] and [LocalSubjectAccessReviews] for any user
//   - [SelfSubjectAccessReviews] for the caller (kubectl auth can-i)
//   - [SelfSubjectRulesReviews], all that the caller may do (kubectl auth can-i --list)
//
// They ask the authorizers of the plane, whatever these are.
package authorization

import (
	"context"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// All are the parts of this package.
func All() controlplane.Parts {
	return controlplane.Parts{SubjectAccessReviews{}, LocalSubjectAccessReviews{}, SelfSubjectAccessReviews{}, SelfSubjectRulesReviews{}}
}

// SubjectAccessReviews is the part that serves subjectaccessreviews.
type SubjectAccessReviews struct{}

// Install adds subjectaccessreviews to the group.
func (SubjectAccessReviews) Install(p *controlplane.Plan) error {
	return serve(p, "subjectaccessreviews", false,
		func(ctx context.Context, config controlplane.BuildConfig, r *authorizationv1.SubjectAccessReview) error {
			if err := invalid("SubjectAccessReview", checkSpec(&r.Spec)); err != nil {
				return err
			}
			r.Status = decide(ctx, config.Authorizer, subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			return nil
		})
}

// LocalSubjectAccessReviews is the part that serves localsubjectaccessreviews, which
// ask about one namespace, so that the right to ask can be granted per namespace.
type LocalSubjectAccessReviews struct{}

// Install adds localsubjectaccessreviews to the group.
func (LocalSubjectAccessReviews) Install(p *controlplane.Plan) error {
	return serve(p, "localsubjectaccessreviews", true,
		func(ctx context.Context, config controlplane.BuildConfig, r *authorizationv1.LocalSubjectAccessReview) error {
			errs := checkSpec(&r.Spec)
			if r.Spec.NonResourceAttributes != nil {
				errs = append(errs, field.Invalid(field.NewPath("spec", "nonResourceAttributes"), r.Spec.NonResourceAttributes,
					"disallowed on this kind of request"))
			}
			if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
				errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), a.Namespace,
					"must match metadata.namespace"))
			}
			if err := invalid("LocalSubjectAccessReview", errs); err != nil {
				return err
			}
			r.Status = decide(ctx, config.Authorizer, subject(&r.Spec), r.Spec.ResourceAttributes, nil)
			return nil
		})
}

// SelfSubjectAccessReviews is the part that serves selfsubjectaccessreviews.
type SelfSubjectAccessReviews struct{}

// Install adds selfsubjectaccessreviews to the group.
func (SelfSubjectAccessReviews) Install(p *controlplane.Plan) error {
	return serve(p, "selfsubjectaccessreviews", false,
		func(ctx context.Context, config controlplane.BuildConfig, r *authorizationv1.SelfSubjectAccessReview) error {
			errs := checkAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			if err := invalid("SelfSubjectAccessReview", errs); err != nil {
				return err
			}
			u, ok := request.UserFrom(ctx)
			if !ok {
				return apierrors.NewBadRequest("no user present on request")
			}
			r.Status = decide(ctx, config.Authorizer, u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			return nil
		})
}

// SelfSubjectRulesReviews is the part that serves selfsubjectrulesreviews.
// Authorizers that cannot list their rules make the answer incomplete.
type SelfSubjectRulesReviews struct{}

// Install adds selfsubjectrulesreviews to the group.
func (SelfSubjectRulesReviews) Install(p *controlplane.Plan) error {
	return serve(p, "selfsubjectrulesreviews", false,
		func(ctx context.Context, config controlplane.BuildConfig, r *authorizationv1.SelfSubjectRulesReview) error {
			u, ok := request.UserFrom(ctx)
			if !ok {
				return apierrors.NewBadRequest("no user present on request")
			}
			if r.Spec.Namespace == "" {
				return apierrors.NewBadRequest("no namespace on request")
			}
			r.Status = rules(ctx, config.Rules, u, r.Spec.Namespace)
			return nil
		})
}

// serve adds a resource to the group, whose objects answer fills in.
func serve[T any, PT interface {
	*T
	apis.Object
}](p *controlplane.Plan, name string, namespaced bool, answer func(context.Context, controlplane.BuildConfig, PT) error,
) error {
	p.Serve(shared(), apis.Action(authorizationv1.SchemeGroupVersion, name, namespaced,
		func(config controlplane.BuildConfig) func(context.Context, PT) error {
			return func(ctx context.Context, r PT) error { return answer(ctx, config, r) }
		}))
	return nil
}

// shared is the group, made once per process.
var shared = sync.OnceValue(func() *controlplane.API {
	gv := authorizationv1.SchemeGroupVersion
	kinds := apis.RegisterKinds(gv, &authorizationv1.SubjectAccessReview{}, &authorizationv1.LocalSubjectAccessReview{},
		&authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{})
	return apis.NewGroup(gv, kinds, definitions).API()
})

func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}

// decide asks the authorizer.
func decide(
	ctx context.Context, a authorizer.Authorizer,
	u user.Info, r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes,
) authorizationv1.SubjectAccessReviewStatus {
	asked, parseErr := attributes(u, r, n)
	decision, reason, authErr := a.Authorize(ctx, asked)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err := utilerrors.NewAggregate([]error{authErr, parseErr}); err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

// rules lists what the resolver knows, in its order.
func rules(ctx context.Context, resolver authorizer.RuleResolver, u user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus {
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	resources, others, incomplete, err := resolver.RulesFor(ctx, u, namespace)
	for _, r := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, r := range others {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs(),
		})
	}
	status.Incomplete = incomplete
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}
