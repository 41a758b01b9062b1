package kube

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	batchrules "github.com/sailplane-dev/sailplane/pkg/internal/rules/batch"
)

func batch() apiGroup {
	return apiGroup{batchv1.SchemeGroupVersion, batchDefinitions, batchrules.RegisterValidations, nil, []func() *apis.Definition{
		jobs, cronJobs,
	}}
}

func jobs() *apis.Definition {
	return apis.Resource[batchv1.Job, batchv1.JobList]("jobs",
		apis.Categories("all"), apis.StatusAndMetadata(),
		apis.RuleOptions(map[string]bool{"WorkloadWithJob": false}),
		apis.Default(defaultJob),
		gated[batchv1.Job](podSpecGates()),
		apis.PrepareForCreate(selectOwnPods),
		apis.Validate(func(_ context.Context, j *batchv1.Job) field.ErrorList {
			return validateJobSpec(&j.Spec, true, field.NewPath("spec"))
		}),
		apis.ValidateUpdate(validateJobUpdate),
		apis.SelectableFields(map[string]func(*batchv1.Job) string{
			"status.successful": func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) },
		}),
		orphans(),
		table(jobRow, "Status", "Completions", "Duration", "", "Containers", "Images", "Selector"),
	)
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	if s.Completions == nil && s.Parallelism == nil {
		set(&s.Completions, 1)
	}
	set(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		set(&s.BackoffLimit, math.MaxInt32)
	}
	set(&s.BackoffLimit, 6)
	set(&s.CompletionMode, batchv1.NonIndexedCompletion)
	set(&s.Suspend, false)
	set(&s.ManualSelector, false)
	if s.PodFailurePolicy != nil {
		set(&s.PodReplacementPolicy, batchv1.Failed)
		for i := range s.PodFailurePolicy.Rules {
			for k := range s.PodFailurePolicy.Rules[i].OnPodConditions {
				fill(&s.PodFailurePolicy.Rules[i].OnPodConditions[k].Status, corev1.ConditionTrue)
			}
		}
	}
	set(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(s.Template.Labels)
	}
	defaultPodSpec(&s.Template.Spec)
}

// selectOwnPods makes a job select only the pods with its UID, unless manualSelector is set.
func selectOwnPods(_ context.Context, j *batchv1.Job) {
	if value(j.Spec.ManualSelector) {
		return
	}
	j.Spec.Template.Labels = merged(j.Spec.Template.Labels, map[string]string{
		"controller-uid": string(j.UID), "job-name": j.Name,
		batchv1.ControllerUidLabel: string(j.UID), batchv1.JobNameLabel: j.Name,
	})
	set(&j.Spec.Selector, metav1.LabelSelector{})
	own := map[string]string{batchv1.ControllerUidLabel: string(j.UID)}
	j.Spec.Selector.MatchLabels = merged(j.Spec.Selector.MatchLabels, own)
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels) // by default they are those of the template
	}
}

// validateJobSpec checks a job, or the template of one, which has no selector yet.
func validateJobSpec(s *batchv1.JobSpec, complete bool, path *field.Path) field.ErrorList {
	errs := optionalNotNegative(path, map[string]*int32{
		"parallelism": s.Parallelism, "completions": s.Completions, "backoffLimit": s.BackoffLimit,
		"ttlSecondsAfterFinished": s.TTLSecondsAfterFinished, "backoffLimitPerIndex": s.BackoffLimitPerIndex,
		"maxFailedIndexes": s.MaxFailedIndexes,
	})
	errs = append(errs, notNegative(path.Child("activeDeadlineSeconds"), value(s.ActiveDeadlineSeconds))...)
	if mode := s.CompletionMode; mode != nil {
		errs = append(errs, check.OneOf(path.Child("completionMode"), *mode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)...)
		if *mode == batchv1.IndexedCompletion && s.Completions == nil {
			errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
		}
	}
	template := path.Child("template")
	if complete {
		selector, err := metav1.LabelSelectorAsSelector(s.Selector)
		switch {
		case s.Selector == nil:
			errs = append(errs, field.Required(path.Child("selector"), ""))
		case err != nil:
			errs = append(errs, field.Invalid(path.Child("selector"), s.Selector, err.Error()))
		case !selector.Matches(labels.Set(s.Template.Labels)):
			errs = append(errs, field.Invalid(template.Child("metadata", "labels"), s.Template.Labels,
				"`selector` does not match template `labels`"))
		}
	} else if value(s.ManualSelector) {
		errs = append(errs, field.NotSupported(path.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	errs = append(errs, validatePodTemplate(&s.Template, template)...)
	if p := s.Template.Spec.RestartPolicy; p == corev1.RestartPolicyAlways {
		errs = append(errs, field.Required(template.Child("spec", "restartPolicy"), `valid values: "OnFailure", "Never"`))
	}
	return errs
}

func validateJobUpdate(_ context.Context, j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	is, was := &j.Spec, &old.Spec
	errs := immutable(spec.Child("selector"), is.Selector, was.Selector)
	errs = append(errs, immutable(spec.Child("completionMode"), is.CompletionMode, was.CompletionMode)...)
	errs = append(errs, immutable(spec.Child("podFailurePolicy"), is.PodFailurePolicy, was.PodFailurePolicy)...)
	errs = append(errs, immutable(spec.Child("backoffLimitPerIndex"), is.BackoffLimitPerIndex, was.BackoffLimitPerIndex)...)
	errs = append(errs, immutable(spec.Child("managedBy"), is.ManagedBy, was.ManagedBy)...)
	errs = append(errs, immutable(spec.Child("successPolicy"), is.SuccessPolicy, was.SuccessPolicy)...)
	elastic := value(was.CompletionMode) == batchv1.IndexedCompletion && value(is.Completions) == value(is.Parallelism)
	if !elastic {
		errs = append(errs, immutable(spec.Child("completions"), is.Completions, was.Completions)...)
	}
	template := is.Template.DeepCopy()
	if value(was.Suspend) && old.Status.Active == 0 {
		// Scheduling and resources of its pods can change while a job is suspended.
		template.Spec.NodeSelector, template.Spec.Affinity = was.Template.Spec.NodeSelector, was.Template.Spec.Affinity
		template.Spec.Tolerations = was.Template.Spec.Tolerations
		template.Spec.SchedulingGates = was.Template.Spec.SchedulingGates
		template.Annotations, template.Labels = was.Template.Annotations, was.Template.Labels
		for i := range min(len(template.Spec.Containers), len(was.Template.Spec.Containers)) {
			template.Spec.Containers[i].Resources = was.Template.Spec.Containers[i].Resources
		}
	}
	if !equality.Semantic.DeepEqual(template, &was.Template) {
		errs = append(errs, field.Invalid(spec.Child("template"), is.Template, "field is immutable"))
	}
	return errs
}

func jobRow(j *batchv1.Job) []any {
	names, images := containers(j.Spec.Template.Spec)
	completions := fmt.Sprintf("%d/1", j.Status.Succeeded)
	if j.Spec.Completions != nil {
		completions = ratio(j.Status.Succeeded, *j.Spec.Completions)
	} else if n := value(j.Spec.Parallelism); n > 1 {
		completions = fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, n)
	}
	took := ""
	if j.Status.StartTime != nil {
		end := time.Now()
		if j.Status.CompletionTime != nil {
			end = j.Status.CompletionTime.Time
		}
		took = duration.HumanDuration(end.Sub(j.Status.StartTime.Time))
	}
	return []any{jobStatus(j), completions, took, names, images, metav1.FormatLabelSelector(j.Spec.Selector)}
}

func jobStatus(j *batchv1.Job) string {
	have := map[batchv1.JobConditionType]bool{}
	for _, c := range j.Status.Conditions {
		have[c.Type] = c.Status == corev1.ConditionTrue
	}
	const terminating = "Terminating"
	have[terminating] = j.DeletionTimestamp != nil
	for _, state := range []batchv1.JobConditionType{
		batchv1.JobComplete, batchv1.JobFailed, terminating, batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
	} {
		if have[state] {
			return string(state)
		}
	}
	return "Running"
}
