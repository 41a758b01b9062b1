package core

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// toNewEvent makes the events.k8s.io/v1 form of an event. The two share what
// they point to.
func toNewEvent(e *corev1.Event) *eventsv1.Event {
	n := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp,
		DeprecatedCount: e.Count,
	}
	if e.Series != nil {
		n.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return n
}

// toCoreEvent makes the v1 form, in which events are stored.
func toCoreEvent(n *eventsv1.Event) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta: n.ObjectMeta, EventTime: n.EventTime,
		ReportingController: n.ReportingController, ReportingInstance: n.ReportingInstance,
		Action: n.Action, Reason: n.Reason, InvolvedObject: n.Regarding, Related: n.Related, Message: n.Note, Type: n.Type,
		Source: n.DeprecatedSource, FirstTimestamp: n.DeprecatedFirstTimestamp, LastTimestamp: n.DeprecatedLastTimestamp,
		Count: n.DeprecatedCount,
	}
	if n.Series != nil {
		e.Series = &corev1.EventSeries{Count: n.Series.Count, LastObservedTime: n.Series.LastObservedTime}
	}
	return e
}

// newForm turns an event or a list of events of v1 into events.k8s.io/v1.
// Anything else, such as a Status, stays.
func newForm(obj runtime.Object) runtime.Object {
	if cached, ok := obj.(runtime.CacheableObject); ok {
		obj = cached.GetObject()
	}
	switch o := obj.(type) {
	case *corev1.Event:
		return toNewEvent(o)
	case *corev1.EventList:
		list := &eventsv1.EventList{ListMeta: o.ListMeta, Items: make([]eventsv1.Event, len(o.Items))}
		for i := range o.Items {
			list.Items[i] = *toNewEvent(&o.Items[i])
		}
		return list
	}
	return obj
}

// coreForm is the reverse of newForm.
func coreForm(obj runtime.Object) runtime.Object {
	switch o := obj.(type) {
	case *eventsv1.Event:
		return toCoreEvent(o)
	case *eventsv1.EventList:
		list := &corev1.EventList{ListMeta: o.ListMeta, Items: make([]corev1.Event, len(o.Items))}
		for i := range o.Items {
			list.Items[i] = *toCoreEvent(&o.Items[i])
		}
		return list
	}
	return obj
}
