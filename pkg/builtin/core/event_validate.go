package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of events that have an eventTime, in bytes: KEP 383.
const (
	maxEventWord = 128 // reportingInstance, action, reason
	maxEventNote = 1024
)

// validateEvent checks events written through v1 as kube-apiserver does.
func validateEvent(_ context.Context, e *corev1.Event) field.ErrorList {
	return checkEvent(e, "reportingComponent")
}

// checkEvent makes the checks of both groups. An event without an eventTime, as clients
// of v1 make it, only has to be in the namespace of its object, or in default if that
// is cluster-scoped. reporting is the group's name for the reporting controller.
func checkEvent(e *corev1.Event, reporting string) field.ErrorList {
	var errs field.ErrorList
	about := e.InvolvedObject.Namespace
	elsewhere := about != e.Namespace
	if about == "" {
		elsewhere = e.Namespace != "" && e.Namespace != metav1.NamespaceDefault &&
			(e.EventTime.IsZero() || e.Namespace != metav1.NamespaceSystem)
	} else if !e.EventTime.IsZero() {
		elsewhere = false // the newer form leaves that to its writer
	}
	if elsewhere {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace"))
	}
	if !e.EventTime.IsZero() {
		errs = append(errs, checkEventWords(e, reporting)...)
	}
	return errs
}

func checkEventWords(e *corev1.Event, reporting string) field.ErrorList {
	var errs field.ErrorList
	if e.ReportingController == "" {
		errs = append(errs, field.Required(field.NewPath(reporting), ""))
	}
	errs = append(errs, metav1validation.ValidateLabelName(e.ReportingController, field.NewPath(reporting))...)
	for _, w := range []struct{ name, value string }{
		{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason},
	} {
		if w.value == "" {
			errs = append(errs, field.Required(field.NewPath(w.name), ""))
		}
		errs = append(errs, tooLong(w.name, w.value, maxEventWord)...)
	}
	return append(errs, tooLong("message", e.Message, maxEventNote)...)
}

func tooLong(name, value string, most int) field.ErrorList {
	if len(value) <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %v characters", most))}
}

// checkNewEvent checks an event created through events.k8s.io/v1, by the names
// that its fields have in v1, as Kubernetes does.
func checkNewEvent(e *corev1.Event) field.ErrorList {
	errs := append(checkEvent(e, "reportingController"), checkSeries(e)...)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type)))
	}
	for _, old := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()},
		{"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0},
		{"source", e.Source != corev1.EventSource{}},
	} {
		if old.set {
			errs = append(errs, field.Invalid(field.NewPath(old.name), "", "needs to be unset"))
		}
	}
	return errs
}

// checkNewEventUpdate checks an update through events.k8s.io/v1: only metadata
// and the series may change.
func checkNewEventUpdate(e, old *corev1.Event) field.ErrorList {
	errs := checkEvent(e, "reportingController")
	if !equality.Semantic.DeepEqual(e.Series, old.Series) {
		errs = append(errs, checkSeries(e)...)
	}
	// Stored times have microseconds: a writer's nanoseconds change nothing.
	if !e.EventTime.Equal(&old.EventTime) {
		errs = append(errs, apivalidation.ValidateImmutableField(e.EventTime, old.EventTime, field.NewPath("eventTime"))...)
	}
	for _, f := range []struct {
		name     string
		now, was any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject},
		{"reason", e.Reason, old.Reason},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"message", e.Message, old.Message},
		{"type", e.Type, old.Type},
		{"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp},
		{"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count},
		{"source", e.Source, old.Source},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.now, f.was, field.NewPath(f.name))...)
	}
	return errs
}

func checkSeries(e *corev1.Event) field.ErrorList {
	if e.Series == nil {
		return nil
	}
	var errs field.ErrorList
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}
