package aggregator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"
	"k8s.io/utils/lru"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// checkInterval is the pause between two checks of an APIService, and a fifth more at
	// random: several are not all checked at once.
	checkInterval = 3 * time.Second
	// checkTimeout is how long a server may take to answer, as in kube-aggregator.
	checkTimeout = 5 * time.Second
	// checkWorkers is how many servers are asked at the same time. One that hangs takes a
	// worker for as long as the timeout.
	checkWorkers = 8
	// seenNames is how many names of remote APIServices are remembered. It only has to be
	// more than can be deleted in the moment after which the proxy knows of it.
	seenNames = 1024
)

// availability asks the servers of remote APIServices for the discovery of their group
// version, and keeps the condition Available, with the reasons of kube-aggregator.
type availability struct {
	services *connections
	remote   signal.Change // announced when a remote APIService is read or written

	informer cache.SharedIndexInformer
	lister   listers.APIServiceLister
	client   *clientset.Clientset
	seen     *lru.Cache // names of APIServices that are or lately were remote
}

func newAvailability(services *connections) *availability {
	return &availability{services: services, seen: lru.New(seenNames)}
}

// remoteIndex has the remote APIServices.
const remoteIndex = "remote"

// watch has the informer find remote APIServices, before it starts. The index tells of
// them: a handler of events would run in planes without any, too.
func (a *availability) watch(services informers.APIServiceInformer) error {
	a.informer, a.lister = services.Informer(), services.Lister()
	return a.informer.AddIndexers(cache.Indexers{remoteIndex: func(o any) ([]string, error) {
		if s, ok := o.(*apiregistrationv1.APIService); ok && s.Spec.Service != nil {
			a.seen.Add(s.Name, true)
			a.remote.Announce()
			return []string{s.Name}, nil
		}
		return nil, nil
	}})
}

// run checks until the context ends. While there are no remote APIServices, it only waits.
// Where nothing finds Services, APIServices stay as they are.
func (a *availability) run(ctx context.Context, p *controlplane.Plane) error {
	if !a.services.ResolvesServices() {
		return nil
	}
	var err error
	if a.client, err = clientset.NewForConfig(asAggregator(p.ProtobufConfig())); err != nil {
		return err
	}
	for a.remote.Await(ctx, a.any) == nil {
		if err := a.follow(ctx); err != nil {
			return err
		}
	}
	return nil
}

// any tells whether there are remote APIServices.
func (a *availability) any() bool {
	return len(a.informer.GetIndexer().ListIndexFuncValues(remoteIndex)) > 0
}

// follow checks remote APIServices, when they change and again and again, until there are
// none left.
func (a *availability) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := retry.NewQueue[string](checkInterval, checkInterval)
	handler, err := a.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(queue, nil, o) },
		UpdateFunc: func(old, o any) { changed(queue, old, o) },
	})
	if err != nil {
		queue.ShutDown()
		return ctx.Err() // the informer ended, with the plane
	}
	defer func() { _ = a.informer.RemoveEventHandler(handler) }() // unless it ended
	queue.Run(ctx, checkWorkers, func(ctx context.Context, name string) error {
		s, err := a.lister.Get(name)
		if err != nil || s.Spec.Service == nil {
			if !a.any() {
				cancel()
			}
			return nil
		}
		queue.AddAfter(name, checkInterval+rand.N(checkInterval/5))
		return a.check(ctx, s)
	}, func(ctx context.Context, name string, err error) {
		klog.FromContext(ctx).Error(err, "Could not write the status of an APIService", "name", name)
	})
	return nil
}

// changed has an APIService checked that is remote, or was. A new status is no reason.
func changed(queue *retry.Queue[string], old, o any) {
	s, ok := o.(*apiregistrationv1.APIService)
	if !ok {
		return
	}
	was, known := old.(*apiregistrationv1.APIService)
	if known && was.UID == s.UID && reflect.DeepEqual(was.Spec, s.Spec) || !known && s.Spec.Service == nil {
		return
	}
	queue.Add(s.Name)
}

// check asks a server, and writes the status of its APIService if that changed.
func (a *availability) check(ctx context.Context, s *apiregistrationv1.APIService) error {
	now := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "Passed", Message: "all checks passed",
	}
	err := a.ask(ctx, s)
	if ctx.Err() != nil { // the plane stops, which says nothing of the server
		return ctx.Err()
	}
	if err != nil {
		now.Status, now.Reason, now.Message = apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck", err.Error()
		var unresolved *controlplane.ServiceError
		if errors.As(err, &unresolved) {
			now.Reason = unresolved.Reason
		}
	}
	was := helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available)
	if was != nil && was.Status == now.Status && was.Reason == now.Reason && was.Message == now.Message {
		return nil
	}
	s = s.DeepCopy()
	helper.SetAPIServiceCondition(s, now)
	_, err = a.client.ApiregistrationV1().APIServices().UpdateStatus(ctx, s, metav1.UpdateOptions{})
	return retry.UnlessGone(err)
}

// ask asks the server of an APIService for the discovery of its group version.
func (a *availability) ask(ctx context.Context, s *apiregistrationv1.APIService) error {
	at, err := a.services.ResolveEndpoint(s.Spec.Service.Namespace, s.Spec.Service.Name, *s.Spec.Service.Port)
	if err != nil {
		return err
	}
	config, err := transport.TLSConfigFor(remote.BuildTransportConfig(nil, nil, nil, s))
	if err != nil {
		return fmt.Errorf("caBundle: %w", err)
	}
	at.Path = "/apis/" + s.Spec.Group + "/" + s.Spec.Version
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return err
	}
	// Of no weight without a certificate of a proxy, as with requests that are proxied.
	transport.SetAuthProxyHeaders(r, "system:kube-aggregator", "", []string{"system:masters"}, nil)
	// A connection of its own shows that the server still takes some.
	way := &http.Transport{
		DialContext: a.services.DialContext, TLSClientConfig: config, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment,
	}
	response, err := way.RoundTrip(r)
	if err != nil {
		var broken *net.OpError
		if errors.As(err, &broken) {
			broken.Source = nil // another port each time, which would be another message
		}
		return fmt.Errorf("failing or missing response from %v: %w", at, err)
	}
	_ = response.Body.Close() // only the status counts
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("bad status from %v: %d", at, response.StatusCode)
	}
	return nil
}
