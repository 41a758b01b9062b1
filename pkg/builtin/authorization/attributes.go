package authorization

import (
	"cmp"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// checkSpec checks a review of another user as Kubernetes does.
func checkSpec(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := checkAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func checkAttributes(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	switch {
	case r != nil && n != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), n,
			"cannot be specified in combination with resourceAttributes"))
	case r == nil && n == nil:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes"), r,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if r == nil {
		return errs
	}
	path := spec.Child("resourceAttributes")
	if s := r.FieldSelector; s != nil {
		errs = append(errs, checkSelector(s.RawSelector, len(s.Requirements), path.Child("fieldSelector"))...)
	}
	if s := r.LabelSelector; s != nil {
		errs = append(errs, checkSelector(s.RawSelector, len(s.Requirements), path.Child("labelSelector"))...)
	}
	return errs
}

func checkSelector(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"),
			fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}

// subject is the user that a review asks about.
func subject(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	extra := map[string][]string{}
	for name, values := range spec.Extra {
		extra[name] = values
	}
	return &user.DefaultInfo{Name: spec.User, Groups: spec.Groups, UID: spec.UID, Extra: extra}
}

// attributes are what the authorizer is asked. Selectors that cannot be parsed
// are left out, which asks for more, and returned as an error (KEP 4601). No version
// means any.
func attributes(
	u user.Info, r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes,
) (authorizer.AttributesRecord, error) {
	if r == nil {
		return authorizer.AttributesRecord{User: u, Verb: n.Verb, Path: n.Path}, nil
	}
	asked := authorizer.AttributesRecord{
		User: u, Verb: r.Verb, Namespace: r.Namespace, APIGroup: r.Group, APIVersion: cmp.Or(r.Version, "*"),
		Resource: r.Resource, Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
	}
	var fieldErr, labelErr error
	if r.FieldSelector != nil {
		asked.FieldSelectorRequirements, fieldErr = fieldRequirements(r.FieldSelector)
	}
	if r.LabelSelector != nil {
		asked.LabelSelectorRequirements, labelErr = labelRequirements(r.LabelSelector)
	}
	return asked, errors.Join(fieldErr, labelErr)
}

func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s.RawSelector != "" {
		parsed, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.resourceAttributes.fieldSelector: %w", err)
		}
		return parsed.Requirements(), nil
	}
	var all fields.Requirements
	var errs []error
	for _, r := range s.Requirements {
		switch {
		case r.Operator == metav1.FieldSelectorOpIn && len(r.Values) == 1:
			all = append(all, fields.Requirement{Operator: selection.Equals, Field: r.Key, Value: r.Values[0]})
		case r.Operator == metav1.FieldSelectorOpNotIn && len(r.Values) == 1:
			all = append(all, fields.Requirement{Operator: selection.NotEquals, Field: r.Key, Value: r.Values[0]})
		default:
			errs = append(errs, fmt.Errorf("spec.resourceAttributes.fieldSelector: %s %s with %d values: want In or NotIn with one",
				r.Key, r.Operator, len(r.Values)))
		}
	}
	return all, errors.Join(errs...)
}

func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s.RawSelector != "" {
		parsed, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.resourceAttributes.labelSelector: %w", err)
		}
		all, _ := parsed.Requirements()
		return all, nil
	}
	var all labels.Requirements
	var errs []error
	for _, r := range s.Requirements {
		one, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}})
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.resourceAttributes.labelSelector: %w", err))
			continue
		}
		parsed, _ := one.Requirements()
		all = append(all, parsed...)
	}
	return all, errors.Join(errs...)
}
