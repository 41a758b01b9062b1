package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// newEventsAPI is the group events.k8s.io, the same for every plane.
var newEventsAPI = sync.OnceValue(func() *controlplane.API {
	gv := eventsv1.SchemeGroupVersion
	return apis.NewGroup(gv, func(s *runtime.Scheme) error {
		return errors.Join(apis.RegisterKinds(gv, &eventsv1.Event{}, &eventsv1.EventList{})(s),
			s.AddFieldLabelConversionFunc(gv.WithKind("Event"), newEventLabel))
	}, newEventDefinitions).API()
})

// newEventLabel maps the fields of events.k8s.io/v1 that selectors can use to
// their names in v1.
func newEventLabel(label, value string) (string, string, error) {
	switch label {
	case "metadata.name", "metadata.namespace", "reason", "type":
		return label, value, nil
	case "reportingController":
		return "reportingComponent", value, nil
	}
	if name, ok := strings.CutPrefix(label, "regarding."); ok {
		switch name {
		case "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath":
			return "involvedObject." + name, value, nil
		}
	}
	return "", "", fmt.Errorf("events cannot be selected by the field %q: use metadata.name, metadata.namespace, "+
		"reason, type, reportingController, or regarding. followed by "+
		"kind, namespace, name, uid, apiVersion, resourceVersion or fieldPath", label)
}

// eventView serves the events of v1 as events.k8s.io/v1: it converts requests
// and answers, and leaves the work to the storage of v1.
type eventView struct{ stored rest.StandardStorage }

var (
	_ rest.StandardStorage      = &eventView{}
	_ rest.ShortNamesProvider   = &eventView{}
	_ rest.SingularNameProvider = &eventView{}
	_ rest.Scoper               = &eventView{}
)

// of returns the resource; the view uses its storage once that is built.
func (v *eventView) of(r controlplane.Resource) controlplane.Resource {
	build := r.Build
	r.Build = func(config controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
		built, err := build(config)
		if err != nil {
			return nil, err
		}
		var ok bool
		if v.stored, ok = built[corev1.SchemeGroupVersion.Version][r.Name].(rest.StandardStorage); !ok {
			return nil, errors.New("the storage of events does not support every verb")
		}
		return built, nil
	}
	return r
}

func (v *eventView) resource() controlplane.Resource {
	version := eventsv1.SchemeGroupVersion.Version
	return controlplane.Resource{
		Name: "events", Kind: "Event", Versions: []string{version}, View: true,
		Build: func(controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
			return controlplane.ResourceStorage{version: {"events": v}}, nil
		},
	}
}

func (*eventView) New() runtime.Object { return &eventsv1.Event{} }

func (*eventView) NewList() runtime.Object { return &eventsv1.EventList{} }

// Destroy does nothing: the resource destroys the shared storage.
func (*eventView) Destroy() {}

func (*eventView) NamespaceScoped() bool { return true }

func (*eventView) GetSingularName() string { return "event" }

func (*eventView) ShortNames() []string { return []string{"ev"} }

func (v *eventView) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return converted(v.stored.Get(ctx, name, options))
}

func (v *eventView) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	return converted(v.stored.List(ctx, options))
}

func (v *eventView) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	w, err := v.stored.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return drained{watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		return watch.Event{Type: e.Type, Object: newForm(e.Object)}, true
	})}, nil
}

// drained is a watch that receives its remaining events when it is stopped: the
// goroutine of watch.Filter blocks until its event is received.
type drained struct{ watch.Interface }

// Stop implements watch.Interface.
func (d drained) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}

func (v *eventView) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	e, err := coreEventOf(obj)
	if err != nil {
		return nil, err
	}
	if err := invalidEvent(e, checkNewEvent(e)); err != nil {
		return nil, err
	}
	return converted(v.stored.Create(ctx, e, inNewForm(validate), options))
}

func (v *eventView) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if update != nil {
		inner := update
		update = func(ctx context.Context, obj, old runtime.Object) error {
			return inner(ctx, newForm(obj), newForm(old))
		}
	}
	obj, created, err := v.stored.Update(ctx, name, updatedEvent{info}, inNewForm(create), update, force, options)
	obj, err = converted(obj, err)
	return obj, created, err
}

func (v *eventView) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	obj, now, err := v.stored.Delete(ctx, name, inNewForm(validate), options)
	obj, err = converted(obj, err)
	return obj, now, err
}

func (v *eventView) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *internalversion.ListOptions,
) (runtime.Object, error) {
	return converted(v.stored.DeleteCollection(ctx, inNewForm(validate), options, list))
}

func (v *eventView) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	t, err := v.stored.ConvertToTable(ctx, coreForm(obj), options)
	if err != nil {
		return nil, err
	}
	for i := range t.Rows {
		t.Rows[i].Object.Object = newForm(t.Rows[i].Object.Object)
	}
	return t, nil
}

func converted(obj runtime.Object, err error) (runtime.Object, error) {
	if err != nil || obj == nil {
		return nil, err
	}
	return newForm(obj), nil
}

// inNewForm shows admission the event as the client wrote it.
func inNewForm(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	if validate == nil {
		return nil
	}
	return func(ctx context.Context, obj runtime.Object) error { return validate(ctx, newForm(obj)) }
}

// updatedEvent makes the update of an event of v1 from one of events.k8s.io/v1.
type updatedEvent struct{ rest.UpdatedObjectInfo }

func (u updatedEvent) UpdatedObject(ctx context.Context, oldObj runtime.Object) (runtime.Object, error) {
	old, ok := oldObj.(*corev1.Event)
	if !ok {
		return nil, fmt.Errorf("%T is not a v1 Event", oldObj)
	}
	obj, err := u.UpdatedObjectInfo.UpdatedObject(ctx, toNewEvent(old))
	if err != nil {
		return nil, err
	}
	e, err := coreEventOf(obj)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	if old.UID == "" {
		errs = checkNewEvent(e)
	} else {
		errs = checkNewEventUpdate(e, old)
	}
	if err := invalidEvent(e, errs); err != nil {
		return nil, err
	}
	return e, nil
}

func coreEventOf(obj runtime.Object) (*corev1.Event, error) {
	n, ok := obj.(*eventsv1.Event)
	if !ok {
		return nil, fmt.Errorf("%T is not an Event of %s", obj, eventsv1.SchemeGroupVersion)
	}
	return toCoreEvent(n), nil
}

func invalidEvent(e *corev1.Event, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(eventsv1.SchemeGroupVersion.WithKind("Event").GroupKind(), e.Name, errs)
}
