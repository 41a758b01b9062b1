package core_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
)

func newEvent(name string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: name},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: "example.com/test", ReportingInstance: "test-1",
		Action: "Test", Reason: "Tested", Note: "it works", Type: corev1.EventTypeNormal,
		Regarding: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "default", Name: name},
	}
}

// TestEventsInBothGroups sees every verb through events.k8s.io in v1, and back.
func TestEventsInBothGroups(t *testing.T) {
	t.Parallel()
	client := serve(t, core.Events{})
	old, events := client.CoreV1().Events("default"), client.EventsV1().Events("default")
	w, err := events.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	made, err := events.Create(t.Context(), newEvent("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := (<-w.ResultChan()).Object; got.(*eventsv1.Event).UID != made.UID {
		t.Errorf("the watch saw %v", got)
	}
	got, err := old.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || got.Message != "it works" || got.InvolvedObject.Name != "a" || got.UID != made.UID {
		t.Errorf("in v1: %v, %v", got, err)
	}
	if _, err := old.Create(t.Context(), event("b", "default"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := events.List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=ConfigMap,regarding.name=b"})
	if err != nil || len(list.Items) != 1 || list.Items[0].DeprecatedSource.Component != "test" {
		t.Errorf("an event of v1 in the other group: %v, %v", list, err)
	}
	patch := []byte(`{"series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.000006Z"}}`)
	if _, err := events.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if got, err = old.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || got.Series == nil || got.Series.Count != 2 {
		t.Errorf("the series in v1: %v, %v", got, err)
	}
	if err := events.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := events.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if list, err := old.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("left in v1: %v, %v", list, err)
	}
}

// TestStrictEvents holds what Kubernetes 1.36 checks of events that are written
// through events.k8s.io/v1.
func TestStrictEvents(t *testing.T) {
	t.Parallel()
	client := serve(t, core.Events{})
	events := client.EventsV1().Events("default")
	for name, c := range map[string]struct {
		reason string
		change func(*eventsv1.Event)
		want   string
	}{
		"good":       {"nothing is missing", func(*eventsv1.Event) {}, ""},
		"time":       {"it is when the event happened", func(e *eventsv1.Event) { e.EventTime = metav1.MicroTime{} }, "eventTime: Required value"},
		"controller": {"someone reports it", func(e *eventsv1.Event) { e.ReportingController = "" }, "reportingController: Required value"},
		"name":       {"it is a qualified name", func(e *eventsv1.Event) { e.ReportingController = "a b" }, "reportingController: Invalid value"},
		"instance":   {"one of several", func(e *eventsv1.Event) { e.ReportingInstance = "" }, "reportingInstance: Required value"},
		"action":     {"something was done", func(e *eventsv1.Event) { e.Action = "" }, "action: Required value"},
		"reason":     {"machines read it", func(e *eventsv1.Event) { e.Reason = strings.Repeat("a", 129) }, "reason: Invalid value: \"\": can have at most 128 characters"},
		"note":       {"people read it", func(e *eventsv1.Event) { e.Note = strings.Repeat("a", 1025) }, "message: Invalid value: \"\": can have at most 1024 characters"},
		"type":       {"there are two", func(e *eventsv1.Event) { e.Type = "Bad" }, "type: Invalid value: \"\": has invalid value: Bad"},
		"old field":  {"it is of v1", func(e *eventsv1.Event) { e.DeprecatedCount = 1 }, "count: Invalid value: \"\": needs to be unset"},
		"series":     {"one is no series", func(e *eventsv1.Event) { e.Series = &eventsv1.EventSeries{Count: 1} }, "series.count: Invalid value: \"\": should be at least 2"},
	} {
		e := newEvent("strict-" + strings.ReplaceAll(name, " ", "-"))
		c.change(e)
		_, err := events.Create(t.Context(), e, metav1.CreateOptions{})
		if (err == nil) != (c.want == "") || err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
		}
	}
	_, err := events.Patch(t.Context(), "strict-good", types.MergePatchType, []byte(`{"note": "other"}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "message: Invalid value: \"other\": field is immutable") {
		t.Errorf("a new note: %v", err)
	}
	apply := []byte(`{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "strict-good", "labels": {"a": "b"}}}`)
	if _, err := events.Patch(t.Context(), "strict-good", types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "test"}); err != nil {
		t.Errorf("server-side apply: %v", err)
	}
	if _, err := client.CoreV1().Events("default").Patch(t.Context(), "strict-good", types.ApplyPatchType,
		[]byte(`{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "strict-good", "labels": {"c": "d"}}}`), metav1.PatchOptions{FieldManager: "test"}); err != nil {
		t.Errorf("server-side apply in v1: %v", err)
	}
}
