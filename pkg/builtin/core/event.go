package core

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/resource"
)

// Events is the part that serves events (v1), which controllers record and
// kubectl describe shows.
type Events struct {
	// TTL is how long an event is kept after its last change, in whole seconds.
	// Empty: one hour, as kube-apiserver does.
	TTL time.Duration
}

// defaultEventTTL is that of kube-apiserver (--event-ttl).
const defaultEventTTL = time.Hour

// Install adds events to the core group.
func (e Events) Install(p *controlplane.Plan) error {
	ttl := e.TTL
	if ttl == 0 {
		ttl = defaultEventTTL
	}
	if ttl < time.Second {
		return fmt.Errorf("field TTL: %v: want a second or more", e.TTL)
	}
	return serve(p, events(resource.Store(func(s *registry.Store) {
		s.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return uint64(ttl / time.Second), nil }
	})))
}

func events(more ...resource.Option) *resource.Definition {
	doc := corev1.Event{}.SwaggerDoc()
	return resource.Of[corev1.Event, corev1.EventList]("events", append([]resource.Option{
		resource.ShortNames("ev"),
		resource.NoGeneration(),
		resource.CreateOnUpdate(),
		resource.Validate(validateEvent),
		resource.SelectableFields(map[string]func(*corev1.Event) string{
			"involvedObject.kind":            func(e *corev1.Event) string { return e.InvolvedObject.Kind },
			"involvedObject.namespace":       func(e *corev1.Event) string { return e.InvolvedObject.Namespace },
			"involvedObject.name":            func(e *corev1.Event) string { return e.InvolvedObject.Name },
			"involvedObject.uid":             func(e *corev1.Event) string { return string(e.InvolvedObject.UID) },
			"involvedObject.apiVersion":      func(e *corev1.Event) string { return e.InvolvedObject.APIVersion },
			"involvedObject.resourceVersion": func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion },
			"involvedObject.fieldPath":       func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
			"reason":                         func(e *corev1.Event) string { return e.Reason },
			"reportingComponent":             func(e *corev1.Event) string { return e.ReportingController },
			"source":                         eventSource,
			"type":                           func(e *corev1.Event) string { return e.Type },
		}),
		resource.Columns(eventRow,
			metav1.TableColumnDefinition{Name: "Last Seen", Type: "string", Description: doc["lastTimestamp"]},
			metav1.TableColumnDefinition{Name: "Type", Type: "string", Description: doc["type"]},
			metav1.TableColumnDefinition{Name: "Reason", Type: "string", Description: doc["reason"]},
			metav1.TableColumnDefinition{Name: "Object", Type: "string", Description: doc["involvedObject"]},
			metav1.TableColumnDefinition{Name: "Message", Type: "string", Description: doc["message"]},
		),
	}, more...)...)
}

// eventSource is the component that reported the event, in the field of its time.
func eventSource(e *corev1.Event) string {
	if e.Source.Component != "" {
		return e.Source.Component
	}
	return e.ReportingController
}

func eventRow(e *corev1.Event) []any {
	seen := e.LastTimestamp.Time
	if seen.IsZero() {
		seen = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(seen) {
		seen = e.Series.LastObservedTime.Time
	}
	age := "<unknown>"
	if !seen.IsZero() {
		age = duration.HumanDuration(time.Since(seen))
	}
	return []any{age, e.Type, e.Reason, fmt.Sprintf("%s/%s", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name), e.Message}
}

// validateEvent checks what kube-apiserver checks of events written through
// core/v1: they are in the namespace of what they are about, those about
// cluster-scoped objects in default.
func validateEvent(_ context.Context, e *corev1.Event) field.ErrorList {
	path := field.NewPath("involvedObject", "namespace")
	switch {
	case e.InvolvedObject.Namespace == "" && e.Namespace != metav1.NamespaceNone && e.Namespace != metav1.NamespaceDefault &&
		e.Namespace != metav1.NamespaceSystem:
		return field.ErrorList{field.Invalid(path, e.InvolvedObject.Namespace, "does not match event.namespace")}
	case e.InvolvedObject.Namespace != "" && e.Namespace != e.InvolvedObject.Namespace:
		return field.ErrorList{field.Invalid(path, e.InvolvedObject.Namespace, "does not match event.namespace")}
	}
	return nil
}
