package storageapi

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

const (
	defaultRotateAfter  = 720 * time.Hour
	shortestRotateAfter = 10 * time.Minute
	longestRotateAfter  = 8760 * time.Hour
)

// newGroup is the API group of the objects that ask for storages: at most so much, and of the operator's
// storages only those with these names. More are further sub-resources.
func newGroup(most Limits, storages []string, more ...apis.Option) *apis.Group {
	o := operator{most: most.orDefaults(), storages: storages}
	return apis.NewGroup(v1alpha1.SchemeGroupVersion(), v1alpha1.AddToScheme, nil,
		apis.Resource[v1alpha1.EtcdStorage, v1alpha1.EtcdStorageList]("etcdstorages", append(more,
			apis.ClusterScoped(),
			apis.Status(),
			// The name is the value of a label and the common name of a certificate.
			apis.NameValidation(apivalidation.NameIsDNSLabel),
			apis.Default(setDefaults),
			apis.Validate(func(_ context.Context, s *v1alpha1.EtcdStorage) field.ErrorList { return validate(s) }),
			apis.ValidateCreate(func(_ context.Context, s *v1alpha1.EtcdStorage) field.ErrorList {
				return o.allows(&s.Spec, &v1alpha1.EtcdStorageSpec{})
			}),
			apis.ValidateUpdate(func(_ context.Context, s, old *v1alpha1.EtcdStorage) field.ErrorList {
				return append(validateUpdate(s, old), o.allows(&s.Spec, &old.Spec)...)
			}),
			apis.Columns(row, columns()...),
		)...))
}

// setDefaults leaves out limits, and with them what the operator allows: that may change.
func setDefaults(s *v1alpha1.EtcdStorage) {
	if s.Spec.RotateAfter == nil {
		s.Spec.RotateAfter = &metav1.Duration{Duration: defaultRotateAfter}
	}
}

// validate checks what does not depend on the operator.
func validate(s *v1alpha1.EtcdStorage) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateDestination(spec.Child("clientCertificate", "secret"), s.Spec.ClientCertificate.Secret)
	errs = append(errs, validateDestination(spec.Child("authority", "configMap"), s.Spec.Authority.ConfigMap)...)
	if r := s.Spec.RotateAfter; r != nil && (r.Duration < shortestRotateAfter || r.Duration > longestRotateAfter) {
		errs = append(errs, field.Invalid(spec.Child("rotateAfter"), r.Duration.String(),
			fmt.Sprintf("must be between %v and %v", shortestRotateAfter, longestRotateAfter)))
	}
	for _, l := range (Limits{}).each(s.Spec.Limits) {
		if l.asked == nil {
			continue
		}
		at := spec.Child("limits", l.field)
		if l.asked.Sign() <= 0 {
			errs = append(errs, field.Invalid(at, l.asked.String(), "must be greater than 0"))
		} else if whole := l.asked.DeepCopy(); !whole.RoundUp(0) {
			errs = append(errs, field.Invalid(at, l.asked.String(), "must be a whole number"))
		}
	}
	return errs
}

func validateDestination(path *field.Path, d v1alpha1.Destination) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct {
		field, value string
		validate     apivalidation.ValidateNameFunc
	}{
		{"namespace", d.Namespace, apivalidation.ValidateNamespaceName},
		{"name", d.Name, apivalidation.NameIsDNSSubdomain},
	} {
		at := path.Child(part.field)
		if part.value == "" {
			errs = append(errs, field.Required(at, "say where it is written"))
			continue
		}
		for _, problem := range part.validate(part.value, false) {
			errs = append(errs, field.Invalid(at, part.value, problem))
		}
	}
	return errs
}

// validateUpdate keeps the destinations: what was written at the earlier ones would stay there, and be valid.
func validateUpdate(s, old *v1alpha1.EtcdStorage) field.ErrorList {
	spec := field.NewPath("spec")
	return append(
		apivalidation.ValidateImmutableField(s.Spec.ClientCertificate, old.Spec.ClientCertificate, spec.Child("clientCertificate")),
		apivalidation.ValidateImmutableField(s.Spec.Authority, old.Spec.Authority, spec.Child("authority"))...)
}

// operator is what the operator of the server allows.
type operator struct {
	most     Limits
	storages []string
}

// allows checks what changed against what the operator allows. What did not may have been allowed
// before: such an object can still be changed otherwise, and deleted.
func (o operator) allows(s, old *v1alpha1.EtcdStorageSpec) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	before := o.most.each(old.Limits)
	for i, l := range o.most.each(s.Limits) {
		if l.asked != nil && l.asked.CmpInt64(l.most) > 0 && !equality.Semantic.DeepEqual(l.asked, before[i].asked) {
			errs = append(errs, field.Invalid(spec.Child("limits", l.field), l.asked.String(),
				fmt.Sprintf("must be at most %d, which is what the operator of the server allows", l.most)))
		}
	}
	switch at := spec.Child("storage"); {
	case s.Storage == "" || s.Storage == ownStorage || s.Storage == old.Storage || slices.Contains(o.storages, s.Storage):
	case len(o.storages) == 0:
		errs = append(errs, field.Invalid(at, s.Storage, "the operator of the server named no storages: leave it out"))
	default:
		errs = append(errs, field.NotSupported(at, s.Storage, o.storages))
	}
	return errs
}

// columns are what kubectl get prints.
func columns() []metav1.TableColumnDefinition {
	status, usage := v1alpha1.EtcdStorageStatus{}.SwaggerDoc(), v1alpha1.EtcdStorageUsage{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Ready", Type: "string", Description: status["conditions"]},
		{Name: "Keys", Type: "integer", Description: usage["keys"]},
		{Name: "Bytes", Type: "integer", Description: usage["bytes"]},
		{Name: "Storage", Type: "string", Description: status["storage"]},
		{Name: "Reason", Type: "string", Description: "Why it is ready or not.", Priority: 1},
		{Name: "Endpoint", Type: "string", Description: status["endpoint"], Priority: 1},
	}
}

func row(s *v1alpha1.EtcdStorage) []any {
	ready, reason := string(metav1.ConditionUnknown), ""
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		ready, reason = string(c.Status), c.Reason
	}
	var keys, bytes any // empty until they are known
	if used := s.Status.Used; used != nil {
		keys, bytes = used.Keys, used.Bytes
	}
	return []any{ready, keys, bytes, s.Status.Storage, reason, s.Status.Endpoint}
}
