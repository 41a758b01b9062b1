package aggregator

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sailplane-dev/sailplane/pkg/internal/statuscode"
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
	a := &statuscode.Writer{ResponseWriter: w}
	defer func() {
		switch {
		case a.Code == 0 || hopOf(r.Context()).failed || r.Context().Err() != nil: // the server did not say
			created(sent.Load())
		case r.Method == http.MethodPost:
			created(a.Code < http.StatusMultipleChoices)
		default:
			created(a.Code == http.StatusCreated)
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

// expect notes that an object may be created, in all versions of its resource that are counted.
// The function that it returns has to be called with whether it may have been.
func (c *census) expect(resource schema.GroupResource, namespace string) (created func(bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var noted []*tally
	for gvr, t := range c.all {
		if gvr.GroupResource() != resource {
			continue
		}
		now := t.unseen[namespace]
		now.all++
		t.unseen[namespace] = now
		noted = append(noted, t)
	}
	return func(created bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, t := range noted {
			t.note(namespace, func(u *unseen) {
				if created {
					u.answered, u.last = u.answered+1, time.Now()
				} else {
					u.all--
				}
			})
		}
	}
}

// watch notes since when there is a watch.
func (c *census) watch(t *tally, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.since = since
}

// note changes what is noted of a namespace, if something is. An object that is seen may be of
// another request, or of none of these: objects are not told apart.
func (t *tally) note(namespace string, change func(*unseen)) {
	now, noted := t.unseen[namespace]
	if !noted {
		return
	}
	change(&now)
	now.answered = min(now.answered, now.all)
	if now.all > 0 {
		t.unseen[namespace] = now
	} else {
		delete(t.unseen, namespace)
	}
}

// forget drops notes of what a watch would have delivered by now: the list before it had that
// already, or it is gone. It is called when the server is known to be alive.
func (t *tally) forget(now time.Time) {
	if t.since.IsZero() || now.Sub(t.since) < seenAfter {
		return
	}
	for namespace, u := range t.unseen {
		if now.Sub(u.last) >= seenAfter {
			t.note(namespace, func(u *unseen) { u.all, u.answered = u.all-u.answered, 0 })
		}
	}
}
