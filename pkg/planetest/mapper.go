package planetest

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// mapper adds retries to the one of client-go, which never reads discovery again.
type mapper struct{ meta.ResettableRESTMapper }

func newMapper(d discovery.DiscoveryInterface) meta.ResettableRESTMapper {
	return mapper{restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

// retryNoMatch calls f, and once more after a reset when it did not find a kind or resource.
func retryNoMatch[T any](m mapper, f func() (T, error)) (T, error) {
	found, err := f()
	if meta.IsNoMatchError(err) {
		m.Reset()
		return f()
	}
	return found, err
}

// KindFor implements meta.RESTMapper.
func (m mapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return retryNoMatch(m, func() (schema.GroupVersionKind, error) { return m.ResettableRESTMapper.KindFor(r) })
}

// KindsFor implements meta.RESTMapper.
func (m mapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return retryNoMatch(m, func() ([]schema.GroupVersionKind, error) { return m.ResettableRESTMapper.KindsFor(r) })
}

// ResourceFor implements meta.RESTMapper.
func (m mapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return retryNoMatch(m, func() (schema.GroupVersionResource, error) { return m.ResettableRESTMapper.ResourceFor(r) })
}

// ResourcesFor implements meta.RESTMapper.
func (m mapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return retryNoMatch(m, func() ([]schema.GroupVersionResource, error) { return m.ResettableRESTMapper.ResourcesFor(r) })
}

// RESTMapping implements meta.RESTMapper.
func (m mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return retryNoMatch(m, func() (*meta.RESTMapping, error) { return m.ResettableRESTMapper.RESTMapping(gk, versions...) })
}

// RESTMappings implements meta.RESTMapper.
func (m mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return retryNoMatch(m, func() ([]*meta.RESTMapping, error) { return m.ResettableRESTMapper.RESTMappings(gk, versions...) })
}

// ResourceSingularizer implements meta.RESTMapper.
func (m mapper) ResourceSingularizer(resource string) (string, error) {
	return retryNoMatch(m, func() (string, error) { return m.ResettableRESTMapper.ResourceSingularizer(resource) })
}
