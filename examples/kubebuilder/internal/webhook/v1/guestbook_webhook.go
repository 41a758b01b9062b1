// Package v1 has the admission webhooks for version v1 of the API.
package v1

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	webappv1 "example.com/guestbook/api/v1"
)

// KeepAnnotation is on guestbooks that must not be deleted.
const KeepAnnotation = "webapp.example.com/keep"

// SetupGuestbookWebhookWithManager registers the webhooks for Guestbook in the manager.
func SetupGuestbookWebhookWithManager(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &webappv1.Guestbook{}).
		WithDefaulter(&GuestbookDefaulter{}).
		WithValidator(&GuestbookValidator{}).
		Complete()
}

// +kubebuilder:webhook:path=/mutate-webapp-example-com-v1-guestbook,mutating=true,failurePolicy=fail,sideEffects=None,groups=webapp.example.com,resources=guestbooks,verbs=create;update,versions=v1,name=mguestbook-v1.example.com,admissionReviewVersions=v1

// GuestbookDefaulter sets the fields that the author of a Guestbook left out.
type GuestbookDefaulter struct{}

// Default sets the greeting.
func (d *GuestbookDefaulter) Default(_ context.Context, book *webappv1.Guestbook) error {
	if book.Spec.Greeting == "" {
		book.Spec.Greeting = "Welcome to " + book.Spec.Title + "!"
	}
	return nil
}

// +kubebuilder:webhook:path=/validate-webapp-example-com-v1-guestbook,mutating=false,failurePolicy=fail,sideEffects=None,groups=webapp.example.com,resources=guestbooks,verbs=create;update;delete,versions=v1,name=vguestbook-v1.example.com,admissionReviewVersions=v1

// GuestbookValidator refuses Guestbooks that cannot be served.
type GuestbookValidator struct{}

// ValidateCreate refuses titles with a line break.
func (v *GuestbookValidator) ValidateCreate(_ context.Context, book *webappv1.Guestbook) (admission.Warnings, error) {
	return warnings(book), validate(book)
}

// ValidateUpdate refuses what ValidateCreate refuses.
func (v *GuestbookValidator) ValidateUpdate(_ context.Context, _, book *webappv1.Guestbook) (admission.Warnings, error) {
	if book.DeletionTimestamp != nil {
		return nil, nil // a deleted guestbook must be able to go
	}
	return warnings(book), validate(book)
}

// ValidateDelete keeps Guestbooks with the annotation.
func (v *GuestbookValidator) ValidateDelete(_ context.Context, book *webappv1.Guestbook) (admission.Warnings, error) {
	if book.Annotations[KeepAnnotation] == "true" {
		return nil, errors.New("it is protected: remove the annotation " + KeepAnnotation + " first")
	}
	return nil, nil
}

// warnings reports values that are allowed but seldom meant.
func warnings(book *webappv1.Guestbook) admission.Warnings {
	if book.Spec.Storage == "Memory" && book.Spec.Replicas != nil && *book.Spec.Replicas > 1 {
		return admission.Warnings{"spec.storage: each server keeps its own entries in memory"}
	}
	return nil
}

func validate(book *webappv1.Guestbook) error {
	if !strings.ContainsAny(book.Spec.Title, "\r\n") {
		return nil
	}
	kind := schema.GroupKind{Group: webappv1.GroupVersion.Group, Kind: "Guestbook"}
	return apierrors.NewInvalid(kind, book.Name, field.ErrorList{
		field.Invalid(field.NewPath("spec", "title"), book.Spec.Title, "must be one line"),
	})
}
