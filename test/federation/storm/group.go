package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// pace is the longest pause between two requests of a writer. The machine is to have something
// to do, and not too much: a request must not be slow because of that.
const pace = 60 * time.Millisecond

// group is a resource of a server.
type group struct {
	server                         string
	group, version, kind, resource string
	spec                           document

	writers []*writer
	watch   *watch
}

func (g *group) apiService() string { return g.version + "." + g.group }

func (g *group) root() string {
	if g.group == "" {
		return "/api/" + g.version
	}
	return "/apis/" + g.group + "/" + g.version
}

func (g *group) all() string { return g.root() + "/" + g.resource }

func (g *group) in(namespace string) string {
	return g.root() + "/namespaces/" + namespace + "/" + g.resource
}

// object makes one that has a value.
func (g *group) object(name, value string) document {
	apiVersion := g.version
	if g.group != "" {
		apiVersion = g.group + "/" + g.version
	}
	o := document{
		"apiVersion": apiVersion, "kind": g.kind,
		"metadata": document{"name": name, "annotations": document{"value": value}},
	}
	if g.spec != nil {
		o["spec"] = g.spec
	}
	return o
}

// meta is what is looked at of an object.
type meta struct{ namespace, name, value, revision string }

func (m meta) key() string { return m.namespace + "/" + m.name }

func metaOf(o document) meta {
	m, _ := o["metadata"].(document)
	text := func(of document, name string) string { s, _ := of[name].(string); return s }
	annotations, _ := m["annotations"].(document)
	return meta{text(m, "namespace"), text(m, "name"), text(annotations, "value"), text(m, "resourceVersion")}
}

// absent is the value of an object that is not there.
const absent = ""

// object is what a writer knows of one that it made. Nobody else writes it.
type object struct {
	space *space
	name  string
	// values are those that it may have: more than one after a write that nobody answered.
	values map[string]bool
}

// writer is a client that writes objects of a group.
type writer struct {
	group   *group
	id      int
	client  *client
	spaces  *spaces
	objects map[string]*object // by namespace and name
	made    int
}

// work writes and reads until the time is over. A request is not given up by that.
func (w *writer) work(working, ctx context.Context) {
	for behind.Pause(working, rand.N(pace)) == nil {
		for key, o := range w.objects {
			if o.space.isEnded() {
				delete(w.objects, key)
			}
		}
		var some *object
		for _, o := range w.objects { // in random order
			some = o
			break
		}
		switch n := rand.IntN(10); {
		case some == nil || n < 2:
			w.create(ctx)
		case n < 5:
			w.update(ctx, some)
		case n < 6:
			w.remove(ctx, some)
		case n < 7:
			w.do(ctx, http.MethodGet, w.group.in(some.space.name), nil)
		case n < 8 && w.group.server == own:
			w.do(ctx, http.MethodGet, "/apis", nil) // not of a server behind, whatever it lists
		default:
			w.read(ctx, some)
		}
	}
}

func (w *writer) do(ctx context.Context, method, path string, body any) answer {
	return w.client.do(ctx, w.group.server, method, path, body)
}

func (w *writer) create(ctx context.Context) {
	s := w.spaces.some()
	if s == nil {
		return
	}
	w.made++
	o := &object{s, fmt.Sprintf("w%d-%d", w.id, w.made), map[string]bool{absent: true}}
	w.objects[s.name+"/"+o.name] = o
	w.write(ctx, o, http.MethodPost, w.group.in(s.name), w.group.object(o.name, w.value()))
}

// value is another one each time.
func (w *writer) value() string {
	w.made++
	return fmt.Sprint(w.made)
}

// write sends an object, and notes what it may be now.
func (w *writer) write(ctx context.Context, o *object, method, path string, body document) {
	value := metaOf(body).value
	switch a := w.do(ctx, method, path, body); {
	case a.status == http.StatusOK || a.status == http.StatusCreated:
		o.values = map[string]bool{value: true}
	case a.unanswered():
		o.values[value] = true
	default:
		w.refused(o, method+" "+path, a)
	}
}

// refused is for answers that say no. That is right if the namespace is being deleted, or the
// object may be another one than the client thinks.
func (w *writer) refused(o *object, operation string, a answer) {
	if a.well && !o.space.isEnded() && len(o.values) == 1 {
		w.client.record.wrong("%s: %s of %s, which is one of %v: %v", w.group.server, operation, o.name, o.values, a)
	}
}

// unanswered: the request may have been carried out, now or later.
func (a answer) unanswered() bool {
	return a.status == 0 || a.status >= 500 || a.status == http.StatusTooManyRequests
}

// read looks whether an object is what it was written as, and returns it.
func (w *writer) read(ctx context.Context, o *object) document {
	a := w.do(ctx, http.MethodGet, w.group.in(o.space.name)+"/"+o.name, nil)
	switch {
	case a.unanswered():
		return nil
	case a.status == http.StatusOK && o.values[metaOf(a.body).value]:
		return a.body
	case a.status == http.StatusNotFound && o.values[absent]:
		return nil
	}
	if !o.space.isEnded() {
		w.client.record.wrong("%s: %s/%s is %v, %v, and not one of %v", w.group.server, o.space.name, o.name, a, metaOf(a.body), o.values)
	}
	return nil
}

// update writes another value over the one that was read. A write that was not answered can
// no more come later then: it was over an older one.
func (w *writer) update(ctx context.Context, o *object) {
	found := w.read(ctx, o)
	if found == nil {
		return
	}
	body := w.group.object(o.name, w.value())
	body["metadata"].(document)["resourceVersion"] = metaOf(found).revision
	w.write(ctx, o, http.MethodPut, w.group.in(o.space.name)+"/"+o.name, body)
}

func (w *writer) remove(ctx context.Context, o *object) {
	found := w.read(ctx, o)
	if found == nil {
		return
	}
	path := w.group.in(o.space.name) + "/" + o.name
	same := document{"preconditions": document{"resourceVersion": metaOf(found).revision}}
	switch a := w.do(ctx, http.MethodDelete, path, same); {
	case a.status == http.StatusOK:
		delete(w.objects, o.space.name+"/"+o.name) // from here on it must not be there
	case a.unanswered():
		o.values[absent] = true
	default:
		w.refused(o, "DELETE "+path, a)
	}
}
