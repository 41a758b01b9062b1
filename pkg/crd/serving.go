package crd

import (
	"context"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// servingPause is how long upstream's handler may not know of a change yet before it is asked again.
const servingPause = 2 * time.Millisecond

// serving knows in which generation CRDs are served. Upstream's handler makes what serves one at
// its first request, and serves with that until its informer has told it that the CRD has changed.
// Nothing says when that was, and discovery may have the change before: clients would miss a
// version that they have just added, and lose a field.
type serving struct {
	handler http.Handler // upstream's
	lister  listers.CustomResourceDefinitionLister

	mu   sync.Mutex
	with map[schema.GroupResource]*servedAs // by the storage that the handler made last
}

// servedAs is what a CRD was when what serves it was made.
type servedAs struct{ generation int64 }

func newServing() *serving { return &serving{with: map[schema.GroupResource]*servedAs{}} }

// note notes the storage that the handler makes when it makes what serves a CRD.
func (s *serving) note(m made) made {
	crd, err := s.lister.Get(m.resource.String())
	if err != nil {
		return m // it has just been deleted
	}
	now := &servedAs{crd.Generation}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.with[m.resource] = now
	destroy := m.destroy
	m.destroy = func() {
		destroy()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.with[m.resource] == now {
			delete(s.with, m.resource)
		}
	}
	return m
}

// isOlder tells whether a resource is served as a CRD said before a generation.
func (s *serving) isOlder(resource schema.GroupResource, than int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.with[resource]
	return now != nil && now.generation < than
}

// await returns when no version of a CRD is served as it was before.
func (s *serving) await(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	versions := served(crd)
	if len(versions) == 0 {
		return nil
	}
	one := versions[0]
	return wait.PollUntilContextCancel(ctx, servingPause, true, func(context.Context) (bool, error) {
		if s.isOlder(one.GroupResource(), crd.Generation) {
			s.ask(one, crd.Spec.Scope)
		}
		return !s.isOlder(one.GroupResource(), crd.Generation), nil
	})
}

// ask makes a request for a resource, of a verb that there is not: it ends where the handler has
// found, or made, what serves it. It is not part of the request that waits, which would be answered
// with the warnings of this one.
func (s *serving) ask(r schema.GroupVersionResource, scope apiextensionsv1.ResourceScope) {
	info := &request.RequestInfo{
		IsResourceRequest: true, Verb: "none", APIPrefix: "apis", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource,
	}
	if scope == apiextensionsv1.NamespaceScoped {
		info.Namespace = "default"
	}
	ctx := request.WithRequestInfo(context.Background(), info)
	path := "/apis/" + r.Group + "/" + r.Version + "/" + r.Resource
	if ask, err := http.NewRequestWithContext(ctx, http.MethodOptions, path, http.NoBody); err == nil {
		s.handler.ServeHTTP(nowhere{}, ask)
	}
}

// nowhere is where an answer goes that nobody reads.
type nowhere struct{}

// Header implements http.ResponseWriter.
func (nowhere) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (nowhere) WriteHeader(int) {}
