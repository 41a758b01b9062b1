package storageapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

const (
	// sharedAuthorities is the value that servers share: the authorities of tenants'
	// certificates, which each has to know before it listens.
	sharedAuthorities = "etcd-storage-authorities"
	// endTime is how long calls of tenants may go on when the server is to end. They
	// go on at another one, or when this one is there again.
	endTime = time.Second
	// tellEvery is how often the status has what is used, if it changed.
	tellEvery = 10 * time.Second
)

// lending is the part in a running server.
type lending struct {
	part    EtcdStorages
	trusted *trusted
	waiting *queue
	tenants *tenants
	end     context.CancelFunc // what runs for tenants

	restores alone

	controller atomic.Pointer[controller] // if this server has it

	front    *front // nil: this server has the destinations
	shared   *controlplane.Shared
	client   rest.Interface
	informer cache.SharedIndexInformer
	server   *etcdserve.Server
	served   sync.WaitGroup
	backends []controlplane.Backend
	clients  []*clientv3.Client
}

func newLending(e EtcdStorages) *lending {
	ts := &tenants{max: e.Max, lent: map[string]*v1alpha1.EtcdStorage{}, connected: map[string]*tenant{}}
	return &lending{part: e, trusted: &trusted{}, waiting: newQueue(), tenants: ts}
}

// share reads the authorities, before the server listens.
func (l *lending) share(ctx context.Context, s *controlplane.Shared) error {
	l.shared = s
	return l.trustAgain(ctx)
}

// trustAgain reads the authorities that servers share.
func (l *lending) trustAgain(ctx context.Context) error {
	content, revision, err := l.shared.Get(ctx, sharedAuthorities)
	if err != nil || revision == 0 {
		return err
	}
	return l.trusted.set(content)
}

// take takes over a connection of a tenant.
func (l *lending) take(c *tls.Conn) (taken bool) {
	id, err := identify(c.ConnectionState().PeerCertificates, l.trusted.roots(), time.Now())
	if err != nil {
		return false // it is somebody else's
	}
	if of := l.tenants.enter(c, id); of != nil {
		l.waiting.put(of)
		return true
	}
	_ = c.Close()
	return true
}

// start opens the storages, and knows all tenants when it returns.
func (l *lending) start(ctx context.Context, p *controlplane.Plane) error {
	if l.part.Kubeconfig != "" {
		var err error
		if l.front, err = openFront(l.part.Kubeconfig); err != nil {
			return err
		}
	}
	stores, err := l.open(ctx, p.Server())
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // until stop
	l.end = end
	if l.client, err = clientOf(p.Config()); err != nil {
		return err
	}
	l.tenants.start(life, stores)
	if err := l.arrive(ctx); err != nil {
		return err
	}
	lists := cache.NewFilteredListWatchFromClient(l.client, "etcdstorages", "", func(o *metav1.ListOptions) {
		if o.ResourceVersion == "0" { // what a cache has may be from before that
			o.ResourceVersion = ""
		}
	})
	l.informer = cache.NewSharedIndexInformer(lists, &v1alpha1.EtcdStorage{}, 0, cache.Indexers{})
	known, err := l.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    l.put,
		UpdateFunc: func(_, s any) { l.put(s) },
		DeleteFunc: l.remove,
	})
	if err != nil {
		return err
	}
	l.served.Go(func() { l.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), known.HasSynced) {
		return fmt.Errorf("list EtcdStorages: %w", context.Cause(ctx))
	}
	if ca := p.Server().Authority(); ca != nil {
		ca.AddListener(l)
	}
	l.server = etcdserve.New(viewOf, etcdserve.Options{
		Credentials: handshaken{}, ConnectionAge: l.part.ConnectionAge, Begin: begin, Asked: asked,
		Endpoints: func() []string { return []string{l.endpoint(p.Server())} },
	})
	l.served.Go(func() { _ = l.server.Serve(l.waiting) }) // it ends with the listener
	return nil
}

func (l *lending) put(o any) {
	if s, ok := o.(*v1alpha1.EtcdStorage); ok {
		l.tenants.put(s)
	}
}

func (l *lending) remove(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if s, ok := o.(*v1alpha1.EtcdStorage); ok {
		l.tenants.remove(s.Name)
	}
}

// clientOf is a client for EtcdStorages.
func clientOf(c *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	version := v1alpha1.SchemeGroupVersion()
	c.GroupVersion, c.APIPath = &version, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(c)
}

// open opens the storages, by name.
func (l *lending) open(ctx context.Context, s *controlplane.Server) (map[string]*store, error) {
	own, prefix := s.Stored()
	stores := map[string]*store{ownStorage: {engine: s.Storage(ctx).Engine, client: own, open: s.StoredClient, prefix: prefix}}
	for name, described := range l.part.Storages {
		b := described.Open()
		l.backends = append(l.backends, b)
		if err := b.Start(ctx); err != nil {
			return nil, fmt.Errorf("storage %q: %w", name, err)
		}
		c, err := b.Client()
		if err != nil {
			return nil, fmt.Errorf("storage %q: %w", name, err)
		}
		l.clients = append(l.clients, c)
		stores[name] = &store{engine: described.Traits().Engine, client: c, open: b.Client, prefix: prefix}
	}
	return stores, nil
}

// endpoint is where tenants reach the server.
func (l *lending) endpoint(s *controlplane.Server) string {
	if l.part.Address != "" {
		url, err := pki.URLOf(l.part.Address, s.Address())
		if err == nil { // which was seen when the part was installed
			return url
		}
	}
	e, err := pki.EndpointOf(s.Address())
	if err != nil {
		return "" // no address that a client could use
	}
	return e.URL
}

// run follows the authorities and tells what is used, until the plane stops.
func (l *lending) run(ctx context.Context, _ *controlplane.Plane) error {
	defer metrics.ReportTenants(l.tenants.report)()
	var running sync.WaitGroup
	running.Go(func() {
		l.shared.Follow(ctx, sharedAuthorities, func() {
			if err := l.trustAgain(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to read the authorities of etcd storages")
			}
		})
	})
	l.tell(ctx)
	running.Wait()
	l.server.End(endTime)
	return nil
}

// tell writes what connected tenants use into their status, now and then, until the
// context ends.
func (l *lending) tell(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for name, u := range l.tenants.used() {
			patch := fmt.Appendf(nil, `{"status":{"used":{"keys":%d,"bytes":%d}}}`, u.keys, u.bytes)
			to := l.client.Patch(types.MergePatchType).Resource("etcdstorages").Name(name).SubResource("status")
			err := to.Body(patch).Do(ctx).Error()
			if err = retry.UnlessGone(err); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("Cannot tell what an EtcdStorage uses; will retry", "name", name, "cause", err)
			}
		}
	}, tellEvery)
}

// stop ends what is left, when no request is served any more.
func (l *lending) stop() {
	_ = l.waiting.Close() // it never fails
	if l.server != nil {
		l.server.Stop()
	}
	l.tenants.stop()
	if l.end != nil {
		l.end()
	}
	l.served.Wait()
	for _, c := range l.clients {
		_ = c.Close() // its error only says that it was closed
	}
	var errs []error
	for _, b := range l.backends {
		errs = append(errs, b.Stop(context.Background()))
	}
	if err := errors.Join(errs...); err != nil {
		klog.Background().Error(err, "Failed to stop the storages of tenants")
	}
}
