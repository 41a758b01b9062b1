package store

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// TestWatchGoesOn: a watch that nobody reads for a while misses nothing, however many
// events come in one go.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	const events = 3000
	w, c := caching(t, NewHistory(32<<20))
	slow, err := resumed(t.Context(), storage.ListOptions{ResourceVersion: "1", Predicate: storage.Everything, Recursive: true},
		resumable{open: func(o storage.ListOptions) (watch.Interface, error) { return c.Watch(t.Context(), "/configmaps/", o) }})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Stop()
	for i := range events {
		w.put(fmt.Sprint("o", i%2), 100)
	}
	for i := range events {
		e, ok := <-slow.ResultChan()
		if !ok {
			t.Fatalf("the watch ended after %d of %d events", i, events)
		}
		if got, want := versionOf(t, e), strconv.Itoa(i+2); got != want {
			t.Fatalf("event %d is of version %s, want %s", i, got, want)
		}
	}
}

// TestResumed: a watch that the cache ended is opened again from where it was, where
// that is known.
func TestResumed(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	marked := storage.ListOptions{SendInitialEvents: &yes, Predicate: storage.SelectionPredicate{AllowWatchBookmarks: true}}
	event := func(kind watch.EventType, version string) watch.Event {
		return watch.Event{Type: kind, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}}
	}
	added, modified, bookmark := event(watch.Added, "7"), event(watch.Modified, "9"), event(watch.Bookmark, "8")
	gone := watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 410}}
	for name, tc := range map[string]struct {
		reason string
		opts   storage.ListOptions
		events []watch.Event
		want   []string // the versions from which it is opened
	}{
		"from a version":             {"its last event is where it is", storage.ListOptions{ResourceVersion: "5"}, []watch.Event{added}, []string{"5", "7"}},
		"nothing sent":               {"it is where it began", storage.ListOptions{ResourceVersion: "5"}, nil, []string{"5", "5"}},
		"present objects, none sent": {"it can begin again", storage.ListOptions{}, nil, []string{"", ""}},
		"present objects":            {"nobody knows which are missing", storage.ListOptions{}, []watch.Event{added}, []string{""}},
		"new objects":                {"one with a later version is none of them", storage.ListOptions{}, []watch.Event{added, event(watch.Added, "8")}, []string{"", "8"}},
		"after present objects":      {"a change comes after all of them", storage.ListOptions{ResourceVersion: "0"}, []watch.Event{added, modified}, []string{"0", "9"}},
		"marked, within": {
			"a change may come before the mark, which would be lost",
			marked,
			[]watch.Event{added, modified},
			[]string{""},
		},
		"marked": {
			"the bookmark is the end of the present objects",
			marked,
			[]watch.Event{added, bookmark},
			[]string{"", "8"},
		},
		"present objects, no bookmarks": {
			"who takes no bookmarks gets no mark", storage.ListOptions{SendInitialEvents: &yes}, []watch.Event{added, modified}, []string{"", "9"},
		},
		"from now on": {"that was another now", storage.ListOptions{SendInitialEvents: &no}, nil, []string{""}},
		"error":       {"it was the last event", storage.ListOptions{ResourceVersion: "5"}, []watch.Event{gone}, []string{"5"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opened []string
			w, err := resumed(t.Context(), tc.opts, resumable{now: func() (uint64, error) { return 7, nil }, open: func(o storage.ListOptions) (watch.Interface, error) {
				if len(opened) == 1 && o.SendInitialEvents != tc.opts.SendInitialEvents && o.SendInitialEvents != nil {
					t.Errorf("%s: it asks for other objects", tc.reason)
				}
				if opened = append(opened, o.ResourceVersion); len(opened) > 1 {
					return nil, errors.New("not again")
				}
				ended := make(chan watch.Event, len(tc.events))
				for _, e := range tc.events {
					ended <- e
				}
				close(ended)
				return watch.NewProxyWatcher(ended), nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for range w.ResultChan() {
				n++
			}
			if n != len(tc.events) || !reflect.DeepEqual(opened, tc.want) {
				t.Errorf("%s: %d events, opened from %q, want %d from %q", tc.reason, n, opened, len(tc.events), tc.want)
			}
		})
	}
}

// TestResumedStops: a watch that is stopped ends, also while nobody reads it.
func TestResumedStops(t *testing.T) {
	t.Parallel()
	source := watch.NewFake()
	w, err := resumed(t.Context(), storage.ListOptions{ResourceVersion: "5"}, resumable{
		open: func(storage.ListOptions) (watch.Interface, error) { return source, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	source.Add(&corev1.ConfigMap{})
	w.Stop()
	w.Stop()
	for range w.ResultChan() {
	}
	if !source.IsStopped() {
		t.Error("the watch of the cache goes on")
	}
}
