package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Events is the part that serves events, which controllers record and kubectl
// describe shows: as v1 and as events.k8s.io/v1, two views of one storage.
// Events written through the newer group are checked strictly, as in Kubernetes
// (KEP 383), those written through v1 as loosely as ever.
type Events struct {
	// TTL is how long an event is kept after its last change, in whole seconds.
	// Empty: one hour, as kube-apiserver does.
	TTL time.Duration
}

// defaultEventTTL is that of kube-apiserver (--event-ttl).
const defaultEventTTL = time.Hour

// Install adds events to the core group and to events.k8s.io.
func (e Events) Install(p *controlplane.Plan) error {
	ttl := cmp.Or(e.TTL, defaultEventTTL)
	if ttl < time.Second {
		return fmt.Errorf("field TTL: %v: want a second or more", e.TTL)
	}
	d := events(apis.Store(func(s *registry.Store) {
		s.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return uint64(ttl / time.Second), nil }
	}))
	if err := d.Err(); err != nil {
		return err
	}
	stored := d.Resource(corev1.SchemeGroupVersion)
	view := &eventView{}
	p.Serve(shared().API(), view.of(stored))
	p.Serve(newEventsAPI(), view.resource())
	return nil
}

func events(more ...apis.Option) *apis.Definition {
	doc := corev1.Event{}.SwaggerDoc()
	return apis.Resource[corev1.Event, corev1.EventList]("events", append([]apis.Option{
		apis.ShortNames("ev"),
		apis.NoGeneration(),
		apis.CreateOnUpdate(),
		apis.Validate(validateEvent),
		apis.SelectableFields(map[string]func(*corev1.Event) string{
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
		apis.Table(eventRow,
			metav1.TableColumnDefinition{Name: "Last Seen", Type: "string", Description: doc["lastTimestamp"]},
			metav1.TableColumnDefinition{Name: "Type", Type: "string", Description: doc["type"]},
			metav1.TableColumnDefinition{Name: "Reason", Type: "string", Description: doc["reason"]},
			metav1.TableColumnDefinition{Name: "Object", Type: "string", Description: doc["involvedObject"]},
			metav1.TableColumnDefinition{Name: "Subobject", Type: "string", Priority: 1, Description: doc["involvedObject"]},
			metav1.TableColumnDefinition{Name: "Source", Type: "string", Priority: 1, Description: doc["source"]},
			metav1.TableColumnDefinition{Name: "Message", Type: "string", Description: doc["message"]},
			metav1.TableColumnDefinition{Name: "First Seen", Type: "string", Priority: 1, Description: doc["firstTimestamp"]},
			metav1.TableColumnDefinition{Name: "Count", Type: "string", Priority: 1, Description: doc["count"]},
			metav1.TableColumnDefinition{
				Name: "Name", Type: "string", Format: "name", Priority: 1, Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
			},
		),
	}, more...)...)
}

// eventSource is the component that reported the event, from the older or the newer field.
func eventSource(e *corev1.Event) string { return cmp.Or(e.Source.Component, e.ReportingController) }

func eventRow(e *corev1.Event) []any {
	first, last, count := since(e.FirstTimestamp.Time, e.EventTime.Time), since(e.LastTimestamp.Time), max(e.Count, 1)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	if e.Series != nil {
		last, count = since(e.Series.LastObservedTime.Time), e.Series.Count
	}
	about := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		about += "/" + e.InvolvedObject.Name
	}
	source := slices.DeleteFunc(
		[]string{eventSource(e), cmp.Or(e.Source.Host, e.ReportingInstance)},
		func(s string) bool { return s == "" })
	return []any{
		last, e.Type, e.Reason, about, e.InvolvedObject.FieldPath, strings.Join(source, ", "),
		strings.TrimSpace(e.Message), first, int64(count), e.Name,
	}
}

// since is the age of the first time that is known.
func since(times ...time.Time) string {
	for _, t := range times {
		if !t.IsZero() {
			return duration.HumanDuration(time.Since(t))
		}
	}
	return "<unknown>"
}
