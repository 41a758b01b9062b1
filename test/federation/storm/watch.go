package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// watch is a client that knows all objects of a group, by a list and what follows.
type watch struct {
	group  *group
	client *client

	mu   sync.Mutex
	seen map[string]string // values
	// begun is how often it began.
	begun int
}

// follow watches, and begins again when the server is hurt, until the context ends.
func (w *watch) follow(ctx context.Context) {
	for ctx.Err() == nil {
		revision, found, err := list(ctx, w.client, w.group)
		if err == nil {
			w.mu.Lock()
			w.seen = found
			w.begun++
			w.mu.Unlock()
			t := w.client.record.begin(w.group.server)
			err = w.read(ctx, revision)
			if ctx.Err() == nil && w.client.record.healthy(t) {
				w.client.record.wrong("%s: a watch ended: %v", w.group.server, err)
			}
		}
		_ = behind.Pause(ctx, pace)
	}
}

// read follows what happens after a list.
func (w *watch) read(ctx context.Context, revision string) error {
	response, err := w.client.open(ctx, http.MethodGet, w.group.all()+"?watch=1&timeoutSeconds=86400&resourceVersion="+revision, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	for events := json.NewDecoder(response.Body); ; {
		var e struct {
			Type   string
			Object document
		}
		if err := events.Decode(&e); err != nil {
			return err
		}
		m := metaOf(e.Object)
		w.mu.Lock()
		switch e.Type {
		case "ADDED", "MODIFIED":
			w.seen[m.key()] = m.value
		case "DELETED":
			delete(w.seen, m.key())
		default:
			err = fmt.Errorf("event %s: %v", e.Type, e.Object)
		}
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// knows are the objects as far as events told.
func (w *watch) knows() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.seen)
}

// list returns the values of all objects of a group that clients wrote, by namespace and name.
func list(ctx context.Context, c *client, g *group) (revision string, found map[string]string, err error) {
	a := c.do(ctx, g.server, http.MethodGet, g.all(), nil)
	if a.status != http.StatusOK {
		return "", nil, fmt.Errorf("a list of %s: %v", g.all(), a)
	}
	found = map[string]string{}
	items, _ := a.body["items"].([]any)
	for _, item := range items {
		if o, ok := item.(document); ok {
			m := metaOf(o)
			found[m.key()] = m.value
		}
	}
	return metaOf(a.body).revision, found, nil
}
