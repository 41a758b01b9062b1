package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/proxy"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Resolver is the part that finds the Services which the plane serves: those of type
// ExternalName by that name, others by their ready endpoints, in EndpointSlices or, without
// any, in Endpoints. The endpoints' port is the one that has the name of the Service's
// port, as in Kubernetes. Cluster IPs and node ports lead nowhere without nodes.
//
// It reads the kinds that the plane serves (core.Services, core.Endpoints,
// endpoints.EndpointSlices), from caches that fill when the first Service is looked for. A
// plane that looks for none has no caches.
type Resolver struct{}

// PartName implements the name errors use.
func (Resolver) PartName() string { return "services.Resolver" }

// Install declares the resolver.
func (Resolver) Install(p *controlplane.Plan) error {
	r := &resolver{serves: p.Serves, begun: make(chan struct{})}
	p.ResolveServices("services of the API", r)
	p.Work(controlplane.Work{Name: "resolve services", Start: func(ctx context.Context, plane *controlplane.Plane) error {
		r.open = sync.OnceValues(func() (*cached, error) { return r.watch(ctx, plane) })
		close(r.begun)
		return nil
	}})
	return nil
}

// patience bounds how long a look waits for a plane that starts, and for the caches.
const patience = 10 * time.Second

// hint ends what is said of a Service that is not found.
const hint = "or name where it runs (services.Addresses, flag --service)"

// resolver resolves the Services of one plane.
type resolver struct {
	serves func(schema.GroupVersionKind) bool
	begun  chan struct{} // closed when open is set
	open   func() (*cached, error)
	filled atomic.Pointer[cached] // from when on nobody waits
}

// cached is what a resolver reads. Kinds that the plane does not serve are nil.
type cached struct {
	services  listers.ServiceLister
	slices    proxy.EndpointSliceGetter
	endpoints listers.EndpointsLister
	filled    []cache.SharedIndexInformer
}

// watch fills the caches, until the context ends.
func (r *resolver) watch(ctx context.Context, plane *controlplane.Plane) (*cached, error) {
	informers, c := plane.Informers(), &cached{}
	if !r.serves(corev1.SchemeGroupVersion.WithKind("Service")) {
		return c, nil
	}
	services := informers.Core().V1().Services()
	c.services, c.filled = services.Lister(), append(c.filled, services.Informer())
	if r.serves(corev1.SchemeGroupVersion.WithKind("Endpoints")) {
		endpoints := informers.Core().V1().Endpoints()
		c.endpoints, c.filled = endpoints.Lister(), append(c.filled, endpoints.Informer())
	}
	if r.serves(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")) {
		all := informers.Discovery().V1().EndpointSlices()
		c.filled = append(c.filled, all.Informer())
		var err error
		if c.slices, err = proxy.NewEndpointSliceIndexerGetter(all); err != nil {
			return nil, fmt.Errorf("watch EndpointSlices: %w", err)
		}
	}
	informers.StartWithContext(ctx)
	return c, nil
}

// await returns the caches when they are filled.
func (r *resolver) await() (*cached, error) {
	if c := r.filled.Load(); c != nil {
		return c, nil
	}
	late := time.After(patience)
	select {
	case <-r.begun:
	case <-late:
		return nil, errors.New("the server has not started")
	}
	c, err := r.open()
	if err != nil {
		return nil, err
	}
	for _, informer := range c.filled {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-late:
			return nil, errors.New("the services of the API are not read yet")
		}
	}
	r.filled.Store(c)
	return c, nil
}

// ResolveEndpoint implements controlplane.ServiceResolver.
func (r *resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	id := namespace + "/" + name
	c, err := r.await()
	if err != nil {
		return nil, fmt.Errorf("service %q: %w", id, err)
	}
	if c.services == nil {
		return nil, missing("ServiceNotFound", "service %q: the server has no Services: serve them (core.Services), %s", id, hint)
	}
	service, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil, missing("ServiceNotFound", "service %q does not exist: create it, with endpoints, %s", id, hint)
	}
	if err != nil {
		return nil, fmt.Errorf("service %q: %w", id, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return proxy.ResolveCluster(c.services, namespace, name, port)
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if at < 0 {
		return nil, missing("ServicePortError", "service %q has no port %d: add it, or name another port where the Service is named",
			id, port)
	}
	endpoints, err := c.endpointsOf(service)
	if err != nil {
		return nil, fmt.Errorf("service %q: %w", id, err)
	}
	if len(endpoints) == 0 {
		return nil, missing("EndpointsNotFound", "service %q has no endpoints: create them, %s", id, hint)
	}
	var family corev1.IPFamily
	if len(service.Spec.IPFamilies) > 0 {
		family = service.Spec.IPFamilies[0]
	}
	host, err := proxy.RandomEndpoint(name, endpoints, service.Spec.Ports[at].Name, family, nil)
	if err != nil {
		return nil, missing("MissingEndpoints", "service %q has no endpoints that are ready and have a port named %q: create them, %s",
			id, service.Spec.Ports[at].Name, hint)
	}
	return &url.URL{Scheme: "https", Host: host}, nil
}

func missing(reason, format string, args ...any) error {
	return &controlplane.ServiceError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// endpointsOf returns the EndpointSlices of a Service, or its Endpoints in that form.
func (c *cached) endpointsOf(s *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	if c.slices != nil {
		if all, err := c.slices.GetEndpointSlices(s.Namespace, s.Name); err != nil || len(all) > 0 {
			return all, err
		}
	}
	if c.endpoints == nil {
		return nil, nil
	}
	endpoints, err := c.endpoints.Endpoints(s.Namespace).Get(s.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []*discoveryv1.EndpointSlice
	for _, subset := range endpoints.Subsets {
		slice := &discoveryv1.EndpointSlice{}
		for _, address := range subset.Addresses { // those that are not ready are in another list
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.IP}})
		}
		for _, port := range subset.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &port.Port})
		}
		all = append(all, slice)
	}
	return all, nil
}
