package projected

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
)

// isMissing tells whether an object does not exist. That its resource is not served is another
// error: the answer then is not of the API.
func isMissing(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// explain returns the answer to a client of the view for an error of a call below. What the client
// can do something about is its own; everything else says which resource cannot be reached, and
// why.
func (s *Store) explain(ctx context.Context, err error) error {
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*storage.StorageError)), errors.As(err, new(explained)):
		return err
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return err
	case errors.As(err, &status) && ctx.Err() == nil && s.isOfClient(err):
		return explained{s.answer(status.Status())}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return explained{apierrors.NewServiceUnavailable(fmt.Sprintf("%s cannot be served: %s: %v", s.Resource, s.Below, err))}
}

// explained is an error that clients of the view understand.
type explained struct{ *apierrors.StatusError }

// Unwrap has the error be found.
func (e explained) Unwrap() error { return e.StatusError }

// isOfClient tells whether an error follows from what the client asks for.
func (s *Store) isOfClient(err error) bool {
	if apierrors.IsNotFound(err) {
		return isMissing(err)
	}
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsForbidden(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
}

// answer is a status below as one of the view.
func (s *Store) answer(below metav1.Status) *apierrors.StatusError {
	answer := *below.DeepCopy()
	if answer.Code >= http.StatusBadRequest && answer.Reason != metav1.StatusReasonExpired {
		answer.Message = fmt.Sprintf("%s: %s", s.Below, answer.Message)
	}
	if d := answer.Details; d != nil && d.Kind != "namespaces" {
		d.Group, d.Kind, d.UID = s.Resource.Group, s.Resource.Resource, ""
	}
	return &apierrors.StatusError{ErrStatus: answer}
}

// refused is the answer to an object that cannot be accepted.
func (s *Store) refused(name string, err error) error {
	status, wrong := apierrors.APIStatus(nil), (*field.Error)(nil)
	switch {
	case errors.As(err, &status):
		return err
	case errors.As(err, &wrong):
		return apierrors.NewInvalid(schema.GroupKind{Group: s.Resource.Group, Kind: s.Kind}, name, field.ErrorList{wrong})
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s %q cannot be accepted: %v", s.Resource, name, err))
}
