package core

import (
	"bytes"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// ConfigMaps is the part that serves configmaps (v1).
type ConfigMaps struct{}

// Install adds configmaps to the core group.
func (ConfigMaps) Install(p *controlplane.Plan) error { return shared().Serve(p, configMaps()) }

func configMaps() *apis.Definition {
	return apis.Resource[corev1.ConfigMap, corev1.ConfigMapList]("configmaps",
		apis.ShortNames("cm"),
		apis.NoGeneration(),
		apis.Validate(validateConfigMap),
		apis.ValidateUpdate(validateConfigMapUpdate),
		apis.Columns(func(c *corev1.ConfigMap) []any {
			return []any{int64(len(c.Data) + len(c.BinaryData))}
		}, metav1.TableColumnDefinition{
			Name: "Data", Type: "string", Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
		}),
	)
}

// validateConfigMap reports errors in the order of the keys, so that the same
// object always gets the same answer.
func validateConfigMap(_ context.Context, c *corev1.ConfigMap) field.ErrorList {
	errs := validateMetaFinalizers(&c.ObjectMeta)
	size := 0
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		path := field.NewPath("data").Key(key)
		errs = append(errs, check.Messages(path, key, validation.IsConfigMapKey(key))...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(path, key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, check.Messages(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(c.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		// An empty path is the whole object: no single field is too long.
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(_ context.Context, c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if !isTrue(old.Immutable) {
		return nil
	}
	if !isTrue(c.Immutable) {
		errs = append(errs, immutableError("immutable"))
	}
	if !maps.Equal(c.Data, old.Data) {
		errs = append(errs, immutableError("data"))
	}
	if !maps.EqualFunc(c.BinaryData, old.BinaryData, bytes.Equal) {
		errs = append(errs, immutableError("binaryData"))
	}
	return errs
}
