package meta

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateCustom_Condition_LastTransitionTime is the published rule.
//
//nolint:revive // the generated code calls it by this name
func ValidateCustom_Condition_LastTransitionTime(
	ctx context.Context, op operation.Operation, path *field.Path, value, oldValue *metav1.Time,
) field.ErrorList {
	return validation.ValidateCustom_Condition_LastTransitionTime(ctx, op, path, value, oldValue)
}
