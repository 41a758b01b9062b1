package aggregator

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// unseen are requests that were handed on to a server, and may have created objects that its
// watch did not deliver yet. A server that is away by then may have them all the same.
type unseen struct {
	all      int
	answered int       // of these, which the server has said it did, or which nobody knows of
	last     time.Time // when one was answered
}

// seenAfter is when the watch of a server that is alive has delivered what it answered.
const seenAfter = 5 * time.Second

// handOn hands a request on to the server. What it may create is noted before.
func (s *server) handOn(w http.ResponseWriter, r *http.Request) {
	resource, namespace := s.mayCreate(r)
	if namespace == "" {
		s.proxy.ServeHTTP(w, r)
		return
	}
	created := s.census.expect(resource, namespace)
	sent := &atomic.Bool{}
	sent.Store(s.direct != nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	}))
	a := &answer{ResponseWriter: w}
	defer func() {
		switch {
		case a.code == 0 || hopOf(r.Context()).failed || r.Context().Err() != nil: // the server did not say
			created(sent.Load())
		case r.Method == http.MethodPost:
			created(a.code < http.StatusMultipleChoices)
		default:
			created(a.code == http.StatusCreated)
		}
	}()
	s.proxy.ServeHTTP(responsewriter.WrapForHTTP1Or2(a), r)
}

// mayCreate returns of what resource, and in what namespace, a request may create an object that
// is counted; no namespace if it cannot.
func (s *server) mayCreate(r *http.Request) (resource schema.GroupResource, namespace string) {
	info, ok := request.RequestInfoFrom(r.Context())
	if s.census == nil || !ok || !info.IsResourceRequest || info.Subresource != "" {
		return resource, ""
	}
	switch info.Verb {
	case "create", "update", "patch":
	default:
		return resource, ""
	}
	if r.URL.RawQuery != "" && r.URL.Query().Has("dryRun") {
		return resource, ""
	}
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Namespace
}

// answer knows the status of an answer, or 0.
type answer struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK { // else another one follows
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// expect notes that an object may be created, in all versions of its resource that are counted.
// The function that it returns has to be called with whether it may have been.
func (c *census) expect(resource schema.GroupResource, namespace string) (created func(bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var noted []schema.GroupVersionResource
	for gvr := range c.taking {
		if gvr.GroupResource() != resource {
			continue
		}
		noted = append(noted, gvr)
		all := c.unseen[gvr]
		if all == nil {
			all = map[string]unseen{}
			c.unseen[gvr] = all
		}
		now := all[namespace]
		now.all++
		all[namespace] = now
	}
	return func(created bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, gvr := range noted {
			c.note(gvr, namespace, func(u *unseen) {
				if created {
					u.answered, u.last = u.answered+1, time.Now()
				} else {
					u.all--
				}
			})
		}
	}
}

// note changes what is noted of a namespace, if something is. An object that is seen may be of
// another request, or of none of these: objects are not told apart.
func (c *census) note(gvr schema.GroupVersionResource, namespace string, change func(*unseen)) {
	now, noted := c.unseen[gvr][namespace]
	if !noted {
		return
	}
	change(&now)
	now.answered = min(now.answered, now.all)
	if now.all > 0 {
		c.unseen[gvr][namespace] = now
	} else {
		delete(c.unseen[gvr], namespace)
	}
}

// watched has notes be forgotten in time, as long as there is a watch.
func (c *census) watched(gvr schema.GroupVersionResource) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since[gvr] = time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.since, gvr)
	}
}

// forget drops notes of what a watch would have delivered by now: the list before it had that
// already, or it is gone. It is called when the server is known to be alive.
func (c *census) forget(now time.Time) {
	for gvr, since := range c.since {
		for namespace, u := range c.unseen[gvr] {
			if now.Sub(since) >= seenAfter && now.Sub(u.last) >= seenAfter {
				c.note(gvr, namespace, func(u *unseen) { u.all, u.answered = u.all-u.answered, 0 })
			}
		}
	}
}
