package kube

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// cronJobName is how long the name of a cronjob may be: its jobs append a time
// of 11 characters, and their names become labels.
const cronJobName = 52

func cronJobs() *apis.Definition {
	return apis.Resource[batchv1.CronJob, batchv1.CronJobList]("cronjobs",
		apis.ShortNames("cj"), apis.Categories("all"), apis.StatusAndMetadata(),
		apis.RuleOptions(map[string]bool{"WorkloadWithJob": false}),
		gated[batchv1.CronJob](podSpecGates()),
		apis.Default(func(c *batchv1.CronJob) {
			fill(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
			set(&c.Spec.Suspend, false)
			set(&c.Spec.SuccessfulJobsHistoryLimit, 3)
			set(&c.Spec.FailedJobsHistoryLimit, 1)
			defaultPodSpec(&c.Spec.JobTemplate.Spec.Template.Spec)
		}),
		apis.Validate(validateCronJob),
		table(cronJobRow, "Schedule", "Timezone", "Suspend", "Active#", "Last Schedule", "", "Containers", "Images", "Selector"),
	)
}

func validateCronJob(_ context.Context, c *batchv1.CronJob) field.ErrorList {
	spec := field.NewPath("spec")
	errs := notNegative(spec.Child("startingDeadlineSeconds"), value(c.Spec.StartingDeadlineSeconds))
	if len(c.Name) > cronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata").Child("name"), c.Name, "must be no more than 52 characters"))
	}
	errs = append(errs, optionalNotNegative(spec, map[string]*int32{
		"successfulJobsHistoryLimit": c.Spec.SuccessfulJobsHistoryLimit, "failedJobsHistoryLimit": c.Spec.FailedJobsHistoryLimit,
	})...)
	errs = append(errs, check.OneOf(spec.Child("concurrencyPolicy"), c.Spec.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	return append(errs, validateJobSpec(&c.Spec.JobTemplate.Spec, false, spec.Child("jobTemplate", "spec"))...)
}

func cronJobRow(c *batchv1.CronJob) []any {
	names, images := containers(c.Spec.JobTemplate.Spec.Template.Spec)
	return []any{
		c.Spec.Schedule, orNone(value(c.Spec.TimeZone)), boolean(c.Spec.Suspend, "<unset>"), int64(len(c.Status.Active)),
		since(c.Status.LastScheduleTime, none), names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}
