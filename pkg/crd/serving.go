package crd

import (
	"context"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// servingPause is how long upstream's handler may not know a CRD yet before it is asked again.
const servingPause = 2 * time.Millisecond

// serving knows in which generation CRDs are served. Upstream's handler makes what serves one at
// its first request, and serves with that until its informer has told it that the CRD has changed.
// Nothing says when that was, and discovery may have the change before: clients would miss a
// version that they have just added, and lose a field.
type serving struct {
	generic.RESTOptionsGetter
	handler http.Handler
	lister  listers.CustomResourceDefinitionLister

	mu   sync.Mutex
	with map[schema.GroupResource]*made // the last
}

// made is what serves a CRD, or a version of it.
type made struct {
	generation int64 // of the CRD
}

// GetRESTOptions implements generic.RESTOptionsGetter: the handler asks for them when it makes what
// serves a CRD.
func (s *serving) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := s.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	decorate := options.Decorator
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		object, list func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		inner, destroy, err := decorate(config, prefix, key, object, list, attributes, trigger, indexers)
		crd, notFound := s.lister.Get(resource.String())
		if err != nil || notFound != nil {
			return inner, destroy, err
		}
		one := &made{crd.Generation}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.with[resource] = one
		return inner, func() {
			destroy()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.with[resource] == one {
				delete(s.with, resource)
			}
		}, nil
	}
	return options, nil
}

// isOlder tells whether a resource is served as a CRD said before a generation.
func (s *serving) isOlder(resource schema.GroupResource, than int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.with[resource]
	return one != nil && one.generation < than
}

// await returns when no version of a CRD is served as it was before.
func (s *serving) await(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	versions := served(crd)
	if len(versions) == 0 {
		return nil
	}
	for s.isOlder(versions[0].GroupResource(), crd.Generation) {
		s.ask(ctx, crd, versions[0])
		select {
		case <-time.After(servingPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ask makes a request for a resource, of a verb that there is not: it ends where the handler has
// found, or made, what serves it.
func (s *serving) ask(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, r schema.GroupVersionResource) {
	info := &request.RequestInfo{
		IsResourceRequest: true, Verb: "none", APIPrefix: "apis", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource,
	}
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		info.Namespace = "default"
	}
	path := "/apis/" + r.Group + "/" + r.Version + "/" + r.Resource
	ask, err := http.NewRequestWithContext(request.WithRequestInfo(ctx, info), http.MethodOptions, path, http.NoBody)
	if err != nil {
		return
	}
	s.handler.ServeHTTP(nowhere{}, ask)
}

// nowhere is where an answer goes that nobody reads.
type nowhere struct{}

// Header implements http.ResponseWriter.
func (nowhere) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (nowhere) WriteHeader(int) {}
