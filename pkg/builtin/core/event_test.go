package core_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func event(name, namespace string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: namespace, Name: name},
		Reason:         "Created", Type: corev1.EventTypeNormal, Source: corev1.EventSource{Component: "test"},
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	events := serve(t, core.Events{}).CoreV1().Events("default")
	for _, name := range []string{"a", "b"} {
		if _, err := events.Create(t.Context(), event(name, "default"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := events.List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=ConfigMap,involvedObject.name=b,source=test"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("events about b: %v, %v", list, err)
	}
	if _, err := events.Create(t.Context(), event("c", "kube-system"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "does not match event.namespace") {
		t.Errorf("an event about an object of another namespace: %v", err)
	}
}

func TestEventsGoAway(t *testing.T) {
	t.Parallel()
	events := serve(t, core.Events{TTL: time.Second}).CoreV1().Events("default")
	// From before there are any, as they may be gone before anybody looks.
	w, err := events.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, name := range []string{"a", "b"} {
		if _, err := events.Create(t.Context(), event(name, "default"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for gone := 0; gone < 2; {
		select {
		case e := <-w.ResultChan():
			if e.Type == watch.Deleted {
				gone++
			}
		case <-ctx.Done():
			t.Fatalf("%d of 2 events went away by themselves in %v, with a TTL of 1 s", gone, patience)
		}
	}
}

func TestEventsNeedAWholeSecond(t *testing.T) {
	t.Parallel()
	_, err := controlplane.New("x").Storage(memory.Store{}).With(core.Events{TTL: time.Millisecond}).Build()
	if err == nil || !strings.Contains(err.Error(), "field TTL: 1ms: want a second or more") {
		t.Errorf("Build: %v", err)
	}
}
