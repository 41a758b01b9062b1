package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

func watchChecks() []resourceCheck {
	return []resourceCheck{
		{"watch-from-version", "a watch from a list's version sees each change once, in order", watchFromVersion},
		{"watch-initial", "a watch from no version begins with what is there", watchInitial},
		{"watch-list", "a watch that asks for the initial events ends them with a bookmark", watchList},
		{"watch-labels", "an object that leaves a watch's selector is DELETED there", watchLabels},
		{"watch-name", "a watch of one name sees no other", watchName},
		{"watch-old-version", "a watch from a version that is too old is 410, or has all since", watchOldVersion},
		{"watch-bad-version", "a watch from a version that is none is 400", watchBadVersion},
		{"watch-timeout", "a watch ends when its timeout is over", watchTimeout},
	}
}

// event is one of a watch.
type event struct {
	Type   watch.EventType           `json:"type"`
	Object unstructured.Unstructured `json:"object"`
}

func (e event) String() string { return fmt.Sprintf("%s %s", e.Type, e.Object.GetName()) }

// stream is a watch.
type stream struct {
	sent   string
	body   io.Closer
	events *json.Decoder
}

// watch begins a watch of the namespace.
func (r *resource) watch(ctx context.Context, query url.Values) (*stream, *answer, error) {
	query.Set("watch", "true")
	request, sent, err := r.request(ctx, ask{method: http.MethodGet, path: r.path(), query: query})
	if err != nil {
		return nil, nil, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, nil, &mismatch{sent, err.Error(), "an answer"}
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return nil, &answer{sent, response.StatusCode, response.Header, body}, nil
	}
	return &stream{sent, response.Body, json.NewDecoder(response.Body)}, nil, nil
}

// began is a watch that has to begin.
func (r *resource) began(ctx context.Context, query url.Values) (*stream, error) {
	w, refused, err := r.watch(ctx, query)
	if err == nil && refused != nil {
		err = refused.wrong("200 and events")
	}
	return w, err
}

// next is the next event but bookmarks, and but those of objects that are about to go: some kinds
// go in steps.
func (w *stream) next() (event, error) {
	for {
		var e event
		if err := w.events.Decode(&e); err != nil {
			return e, &mismatch{w.sent, "the end: " + err.Error(), "an event"}
		}
		if goes := e.Type == watch.Modified && e.Object.GetDeletionTimestamp() != nil; e.Type != watch.Bookmark && !goes {
			return e, nil
		}
	}
}

// sees reads events, which must be these.
func (w *stream) sees(want ...string) error {
	var got []string
	for range want {
		e, err := w.next()
		if err != nil {
			return err
		}
		got = append(got, e.String())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return &mismatch{w.sent, fmt.Sprint(got), fmt.Sprint(want)}
	}
	return nil
}

// life makes, changes and deletes an object.
func (r *resource) life(ctx context.Context) (name string, err error) {
	_, after, err := r.changed(ctx)
	if err != nil {
		return "", err
	}
	a, err := r.remove(ctx, after.GetName(), map[string]any{"gracePeriodSeconds": 0})
	if err != nil {
		return "", err
	}
	return after.GetName(), a.is(http.StatusOK, http.StatusAccepted)
}

func watchFromVersion(ctx context.Context, r *resource) error {
	if err := r.can("list", "watch", "create", "update", "delete"); err != nil {
		return err
	}
	_, list, err := r.list(ctx, nil)
	if err != nil {
		return err
	}
	before, err := r.life(ctx) // before the watch begins
	if err != nil {
		return err
	}
	w, err := r.began(ctx, url.Values{"resourceVersion": {list.GetResourceVersion()}})
	if err != nil {
		return err
	}
	defer w.body.Close()
	after, err := r.life(ctx)
	if err != nil {
		return err
	}
	var want []string
	for _, name := range []string{before, after} {
		want = append(want, "ADDED "+name, "MODIFIED "+name, "DELETED "+name)
	}
	return w.sees(want...)
}

func watchInitial(ctx context.Context, r *resource) error {
	if err := r.can("watch", "create"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	w, err := r.began(ctx, url.Values{"fieldSelector": {"metadata.name=" + made.GetName()}})
	if err != nil {
		return err
	}
	defer w.body.Close()
	return w.sees("ADDED " + made.GetName())
}

func watchList(ctx context.Context, r *resource) error {
	if err := r.can("watch", "create"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	w, refused, err := r.watch(ctx, url.Values{
		"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"},
		"fieldSelector": {"metadata.name=" + made.GetName()},
	})
	if err != nil {
		return err
	}
	if refused != nil {
		if refused.code == http.StatusUnprocessableEntity || refused.code == http.StatusForbidden {
			return skip("it does not know sendInitialEvents, which is an option (KEP-3157)")
		}
		return refused.wrong("200 and events")
	}
	defer w.body.Close()
	if err := w.sees("ADDED " + made.GetName()); err != nil {
		return err
	}
	var e event
	if err := w.events.Decode(&e); err != nil {
		return &mismatch{w.sent, "the end: " + err.Error(), "a bookmark"}
	}
	if e.Type != watch.Bookmark || e.Object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		return &mismatch{w.sent, e.String(), "BOOKMARK with annotation " + metav1.InitialEventsAnnotationKey}
	}
	return nil
}

func watchLabels(ctx context.Context, r *resource) error {
	if err := r.can("list", "watch", "create", "update"); err != nil {
		return err
	}
	_, list, err := r.list(ctx, nil)
	if err != nil {
		return err
	}
	w, err := r.began(ctx, url.Values{"resourceVersion": {list.GetResourceVersion()}, "labelSelector": {"verify=seen"}})
	if err != nil {
		return err
	}
	defer w.body.Close()
	if _, err := r.made(ctx, labelled("verify", "unseen")); err != nil {
		return err
	}
	made, err := r.made(ctx, labelled("verify", "seen"))
	if err != nil {
		return err
	}
	change := made.DeepCopy()
	labelled("verify", "hidden")(change)
	a, err := r.put(ctx, made.GetName(), change)
	if err != nil {
		return err
	}
	if err := a.is(http.StatusOK); err != nil {
		return err
	}
	return w.sees("ADDED "+made.GetName(), "DELETED "+made.GetName())
}

func watchName(ctx context.Context, r *resource) error {
	if err := r.can("list", "watch", "create"); err != nil {
		return err
	}
	_, list, err := r.list(ctx, nil)
	if err != nil {
		return err
	}
	other, wanted := r.fresh(), r.fresh()
	w, err := r.began(ctx, url.Values{
		"resourceVersion": {list.GetResourceVersion()}, "fieldSelector": {"metadata.name=" + wanted.GetName()},
	})
	if err != nil {
		return err
	}
	defer w.body.Close()
	for _, o := range []*unstructured.Unstructured{other, wanted} {
		if _, err := r.create(ctx, o); err != nil {
			return err
		}
	}
	return w.sees("ADDED " + wanted.GetName())
}

func watchOldVersion(ctx context.Context, r *resource) error {
	if err := r.can("watch", "create"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	w, refused, err := r.watch(ctx, url.Values{"resourceVersion": {"1"}, "fieldSelector": {"metadata.name=" + made.GetName()}})
	if err != nil {
		return err
	}
	if refused != nil {
		return refused.refuses("", http.StatusGone)
	}
	defer w.body.Close()
	e, err := w.next()
	if err != nil {
		return err
	}
	code, _, _ := unstructured.NestedInt64(e.Object.Object, "code")
	if e.Type == watch.Error && code == http.StatusGone || e.String() == "ADDED "+made.GetName() {
		return nil
	}
	return &mismatch{w.sent, fmt.Sprintf("%s %v", e.Type, e.Object.Object), "ERROR with code 410, or all events since"}
}

func watchBadVersion(ctx context.Context, r *resource) error {
	if err := r.can("watch", "create"); err != nil {
		return err
	}
	w, refused, err := r.watch(ctx, url.Values{"resourceVersion": {"verify"}})
	if err != nil {
		return err
	}
	if refused == nil {
		_ = w.body.Close()
		return &mismatch{w.sent, "200", "400"}
	}
	return refused.refuses("", http.StatusBadRequest)
}

func watchTimeout(ctx context.Context, r *resource) error {
	if err := r.can("watch", "create"); err != nil {
		return err
	}
	begun := time.Now()
	w, err := r.began(ctx, url.Values{"timeoutSeconds": {"1"}})
	if err != nil {
		return err
	}
	defer w.body.Close()
	for {
		var e event
		if err := w.events.Decode(&e); err != nil {
			if ctx.Err() != nil {
				return &mismatch{w.sent, fmt.Sprintf("no end in %v", time.Since(begun).Round(time.Second)), "the end after a second"}
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return &mismatch{w.sent, "a broken end: " + err.Error(), "an end"}
		}
	}
}
