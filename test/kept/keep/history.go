package main

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sailplane-dev/sailplane/test/kept"
)

// last is the last ConfigMap that is created: the watch ends with it.
const last = "last"

// change writes the second half: updates and deletions, of which later versions
// may still know the history. It returns what the ConfigMaps were on the way,
// with what they were early, before the server compacted.
func (w *writer) change(ctx context.Context, early kept.Past) ([]kept.Past, kept.Watch, error) {
	before, err := w.now(ctx)
	if err != nil {
		return nil, kept.Watch{}, err
	}
	events, err := w.configMaps().Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(before.Revision, 10)})
	if err != nil {
		return nil, kept.Watch{}, err
	}
	defer events.Stop()
	past := []kept.Past{early, before}
	for _, step := range []func(context.Context) error{w.update, w.remove, w.finish} {
		if err := step(ctx); err != nil {
			return nil, kept.Watch{}, err
		}
		now, err := w.now(ctx)
		if err != nil {
			return nil, kept.Watch{}, err
		}
		past = append(past, now)
	}
	seen, err := collect(ctx, events)
	return past, kept.Watch{From: before.Revision, Events: seen}, err
}

// now is what ConfigMaps there are now.
func (w *writer) now(ctx context.Context) (kept.Past, error) {
	objects, revision, err := kept.List(ctx, w.configMaps(), kept.ConfigMaps(), metav1.ListOptions{})
	return kept.Past{Revision: revision, Objects: objects}, err
}

// forget creates and deletes objects, of which nothing is left when the server compacts.
func (w *writer) forget(ctx context.Context) error {
	for i := range 20 {
		u := configMap(fmt.Sprint("forgotten-", i), "which", fmt.Sprint(i))
		if _, err := w.of(u).Create(ctx, u, metav1.CreateOptions{FieldManager: manager}); err != nil {
			return err
		}
		if err := w.of(u).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// update updates one object several times.
func (w *writer) update(ctx context.Context) error {
	for i := range 5 {
		u, err := w.configMaps().Get(ctx, "updated", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedField(u.Object, u.GetResourceVersion()+" and "+fmt.Sprint(i), "data", "round"); err != nil {
			return err
		}
		if _, err := w.configMaps().Update(ctx, u, metav1.UpdateOptions{FieldManager: manager}); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes objects, of which some stay because of a finalizer.
func (w *writer) remove(ctx context.Context) error {
	for _, name := range []string{"deleted", "again", "leaving"} {
		if err := w.configMaps().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	ns := &unstructured.Unstructured{}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	return w.of(ns).Delete(ctx, "kept-leaving", metav1.DeleteOptions{})
}

// finish creates a deleted object again, and the last one.
func (w *writer) finish(ctx context.Context) error {
	for _, u := range []*unstructured.Unstructured{configMap("again", "which", "second"), configMap(last, "which", "last")} {
		if _, err := w.of(u).Create(ctx, u, metav1.CreateOptions{FieldManager: manager}); err != nil {
			return err
		}
	}
	return nil
}

// collect reads events until that of the last object.
func collect(ctx context.Context, events watch.Interface) ([]kept.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, kept.Limit)
	defer cancel()
	var seen []kept.Event
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the watch has not delivered %q: %w", last, ctx.Err())
		case e, open := <-events.ResultChan():
			u, isObject := e.Object.(*unstructured.Unstructured)
			if !open || !isObject || e.Type == watch.Error {
				return nil, fmt.Errorf("the watch ended before %q: %+v", last, e)
			}
			o, err := kept.Of(kept.ConfigMaps(), u)
			if err != nil {
				return nil, err
			}
			seen = append(seen, kept.Event{Type: string(e.Type), Object: o})
			if o.Name == last {
				return seen, nil
			}
		}
	}
}
