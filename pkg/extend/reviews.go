package extend

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/extend/v1alpha1"
)

// CreateReviews is the part that serves createreviews (policy.sailplane.dev/v1alpha1), by
// which another server asks at once whether the namespace of a new object exists and is not
// being deleted, whether its user may create it, and whether the quotas have room. Four
// questions one after the other have four answers that do not fit: here what a quota gives is
// reserved when all is well, and taken back when the object never comes. Who may create
// createreviews learns what others may do, as with subjectaccessreviews.
//
// Namespaces and quotas are checked where the plane has core.Namespaces and
// quota.ResourceQuotas.
type CreateReviews struct{}

// Install adds the group.
func (CreateReviews) Install(p *controlplane.Plan) error {
	var running atomic.Pointer[controlplane.Plane]
	p.Work(controlplane.Work{Name: "createreviews", Start: func(_ context.Context, plane *controlplane.Plane) error {
		running.Store(plane)
		return nil
	}})
	p.Serve(policy(), apis.Action(v1alpha1.SchemeGroupVersion(), "createreviews", false,
		func(config controlplane.BuildConfig) func(context.Context, *v1alpha1.CreateReview) error {
			return func(ctx context.Context, r *v1alpha1.CreateReview) error {
				if errs := check(&r.Spec); len(errs) > 0 {
					return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion().WithKind("CreateReview").GroupKind(), "", errs)
				}
				plane := running.Load()
				if plane == nil {
					return apierrors.NewServiceUnavailable("the server is starting")
				}
				status, err := review(ctx, config.Authorizer, plane, &r.Spec)
				r.Status = status
				return err
			}
		}))
	return nil
}

// policy is the group, made once per process.
var policy = sync.OnceValue(func() *controlplane.API {
	gv := v1alpha1.SchemeGroupVersion()
	return apis.NewGroup(gv, apis.RegisterKinds(gv, &v1alpha1.CreateReview{}), nil).API()
})

func check(s *v1alpha1.CreateReviewSpec) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Required(spec.Child("user"), "name a user, or groups"))
	}
	if s.Version == "" {
		errs = append(errs, field.Required(spec.Child("version"), "name that of the object"))
	}
	if s.Resource == "" {
		errs = append(errs, field.Required(spec.Child("resource"), "name that of the object, such as deployments"))
	}
	return errs
}

// review decides. The right comes first: who does not have it learns nothing of namespaces.
func review(
	ctx context.Context, rights authorizer.Authorizer, plane *controlplane.Plane, s *v1alpha1.CreateReviewSpec,
) (v1alpha1.CreateReviewStatus, error) {
	who := &user.DefaultInfo{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: s.Extra}
	gvr := schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource}
	decision, reason, err := rights.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "create", Namespace: s.Namespace, APIGroup: s.Group, APIVersion: s.Version, Resource: s.Resource,
		Name: s.Name, ResourceRequest: true,
	})
	if decision != authorizer.DecisionAllow {
		if err == nil {
			err = errors.New(reason)
		}
		return refused(apierrors.NewForbidden(gvr.GroupResource(), s.Name, err))
	}
	if s.Namespace == "" {
		return v1alpha1.CreateReviewStatus{Allowed: true}, nil
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}
	if err := plane.AdmitAggregated(ctx, admission.NewAttributesRecord(object, nil, gvr.GroupVersion().WithKind(s.Resource), s.Namespace,
		s.Name, gvr, "", admission.Create, &metav1.CreateOptions{}, s.DryRun, who)); err != nil {
		return refused(err)
	}
	return v1alpha1.CreateReviewStatus{Allowed: true}, nil
}

// refused is the answer that says what the user should be answered. Errors of this server
// alone are no answer.
func refused(err error) (v1alpha1.CreateReviewStatus, error) {
	var why apierrors.APIStatus
	if !errors.As(err, &why) || why.Status().Code >= 500 {
		return v1alpha1.CreateReviewStatus{}, err
	}
	status := why.Status()
	return v1alpha1.CreateReviewStatus{Error: &status}, nil
}
