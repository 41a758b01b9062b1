package kube

import (
	"context"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	storagemigrationrules "github.com/sailplane-dev/sailplane/pkg/internal/rules/storagemigration"
)

// migration is the kind of the group.
type migration = storagemigrationv1.StorageVersionMigration

func storageMigration() apiGroup {
	definitions, rules := storageMigrationDefinitions, storagemigrationrules.RegisterValidations
	return apiGroup{storagemigrationv1.SchemeGroupVersion, definitions, rules, nil, []func() *apis.Definition{migrations}}
}

func migrations() *apis.Definition {
	return apis.Resource[migration, storagemigrationv1.StorageVersionMigrationList]("storageversionmigrations",
		apis.ClusterScoped(), apis.Status(), apis.NoGeneration(),
		apis.Validate(validateMigration),
		apis.ValidateUpdate(validateMigrationUpdate),
		table(func(m *migration) []any { return []any{m.Spec.Resource.String(), migrationState(m)} }, "Resource", "Status"),
		ageAt(3, -1),
	)
}

// migrationState is the last of the known conditions that is true.
func migrationState(m *migration) string {
	state := "Unknown"
	for _, c := range m.Status.Conditions {
		switch storagemigrationv1.MigrationConditionType(c.Type) {
		case storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed:
			if c.Status == metav1.ConditionTrue {
				state = c.Type
			}
		}
	}
	return state
}

func validateMigration(_ context.Context, m *migration) field.ErrorList {
	path, status := field.NewPath("spec", "resource"), field.NewPath("status")
	name, group := m.Spec.Resource.Resource, m.Spec.Resource.Group
	errs := check.Required(path.Child("resource"), name)
	if len(errs) == 0 {
		errs = append(errs, check.Messages(path.Child("resource"), name, validation.IsDNS1035Label(name))...)
	}
	if group != "" {
		errs = append(errs, check.Messages(path.Child("group"), group, validation.IsDNS1123Subdomain(group))...)
	}
	if v := m.Status.ResourceVersion; v != "" {
		if _, err := resourceversion.CompareResourceVersion(v, v); err != nil {
			errs = append(errs, field.Invalid(status.Child("resourceVersion"), v, err.Error()))
		}
	}
	errs = append(errs, metavalidation.ValidateConditions(m.Status.Conditions, status.Child("conditions"))...)
	if migrated(m, storagemigrationv1.MigrationSucceeded) && migrated(m, storagemigrationv1.MigrationFailed) {
		errs = append(errs, field.Invalid(status.Child("conditions"), m.Status.Conditions,
			"Both success and failed conditions cannot be true at the same time"))
	}
	return errs
}

// validateMigrationUpdate keeps the resource to migrate, and the result.
func validateMigrationUpdate(_ context.Context, m, old *migration) field.ErrorList {
	errs := immutable(field.NewPath("spec"), m.Spec, old.Spec)
	status := field.NewPath("status")
	if was := old.Status.ResourceVersion; was != "" {
		errs = append(errs, immutable(status.Child("resourceVersion"), m.Status.ResourceVersion, was)...)
	}
	for word, condition := range map[string]storagemigrationv1.MigrationConditionType{
		"Success": storagemigrationv1.MigrationSucceeded, "Failed": storagemigrationv1.MigrationFailed,
	} {
		if migrated(old, condition) && !migrated(m, condition) {
			errs = append(errs, field.Invalid(status.Child("conditions"), m.Status.Conditions,
				word+" condition cannot be set to false once it is true"))
		}
	}
	return errs
}

// migrated tells whether the migration ended that way.
func migrated(m *migration, how storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(how))
}
