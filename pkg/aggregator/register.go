package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// registration keeps a local APIService for every group version of the plane.
type registration struct {
	informers externalversions.SharedInformerFactory
	plane     *controlplane.Plane
	asked     func()
	wanted    chan struct{} // closed by asked
	begun     chan struct{} // closed when await can be called
	complete  atomic.Bool   // what the plane always serves was registered once
	moved     signal.Change // of the APIServices, or of what is served
}

func newRegistration() *registration {
	r := &registration{wanted: make(chan struct{}), begun: make(chan struct{})}
	r.asked = sync.OnceFunc(func() { close(r.wanted) })
	return r
}

// ownAgent ends the user agent of the aggregator's own clients, whose requests do
// not wait for the registration that they make.
const ownAgent = " (aggregator)"

func asAggregator(c *rest.Config) *rest.Config {
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	c.UserAgent += ownAgent
	return c
}

func isOwn(r *http.Request) bool { return strings.HasSuffix(r.UserAgent(), ownAgent) }

// ownClient is a client of the aggregator's own.
func ownClient(p *controlplane.Plane) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(asAggregator(p.ProtobufConfig()))
}

// wrap registers the APIServices before the first request for them. A plane writes one for
// each of its group versions, and most planes never get such a request: groups are served
// and discovered without them.
func (r *registration) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if ok && info.IsResourceRequest && info.APIGroup == apiregistrationv1.GroupName && !isOwn(req) {
			select {
			case <-r.begun:
				if err := r.await(req.Context()); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
					return
				}
			default: // the plane starts
			}
		}
		next.ServeHTTP(w, req)
	})
}

// followTimeout bounds how long an answer waits for the APIServices of groups
// that came or went: admission may refuse them, which must not block others.
const followTimeout = 5 * time.Second

// await returns when the APIServices are those of the groups served now.
func (r *registration) await(ctx context.Context) error {
	r.asked()
	timeout, late := time.After(followTimeout), false
	for {
		moved := r.moved.Next()
		if r.settled() || late && r.complete.Load() {
			return nil
		}
		select {
		case <-moved:
		case <-timeout:
			late = true
		case <-ctx.Done():
			return fmt.Errorf("APIServices of the plane's groups were not registered: %w", context.Cause(ctx))
		}
	}
}

// settled tells whether the APIServices are those of the group versions served now.
func (r *registration) settled() bool {
	var wanted []controlplane.GroupVersion
	complete := r.complete.Load()
	if !complete { // later on, a missing one was deleted on purpose
		wanted = slices.DeleteFunc(r.plane.GroupVersions(), ownGroup)
	}
	for _, d := range localOnly(r.plane.Dynamic()) {
		wanted = append(wanted, d.GroupVersions()...)
	}
	missing := map[string]bool{}
	for _, gv := range wanted {
		missing[apiService(gv).Name] = true
	}
	services, err := r.informers.Apiregistration().V1().APIServices().Lister().List(labels.Everything())
	if err != nil {
		return false // a lister of a synced informer does not fail
	}
	for _, s := range services {
		if !missing[s.Name] && s.Labels[autoregister.AutoRegisterManagedLabel] == "true" {
			return false // its group is no longer served
		}
		delete(missing, s.Name)
	}
	if len(missing) == 0 && !complete {
		r.complete.Store(true)
	}
	return len(missing) == 0
}

// ownGroup tells whether it is the group of APIServices, which has none, as in
// kube-aggregator.
func ownGroup(gv controlplane.GroupVersion) bool { return gv.Group == apiregistrationv1.GroupName }

// run registers what the plane always serves, follows groups that come and go,
// and ends with the context.
func (r *registration) run(ctx context.Context, p *controlplane.Plane) error {
	r.plane = p
	close(r.begun)
	select {
	case <-r.wanted:
	case <-ctx.Done():
		return nil
	}
	client, err := clientset.NewForConfig(asAggregator(p.ProtobufConfig()))
	if err != nil {
		return err
	}
	services := r.informers.Apiregistration().V1().APIServices()
	controller := autoregister.NewAutoRegisterController(services, client.ApiregistrationV1())
	for _, gv := range slices.DeleteFunc(p.GroupVersions(), ownGroup) {
		controller.AddAPIServiceToSyncOnStart(apiService(gv))
	}
	// The wanted groups must be known before the controller runs: it deletes all
	// other registrations of an earlier run.
	dynamic := localOnly(p.Dynamic())
	registered := register(controller, dynamic, nil)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.Run(1, ctx.Done())
	}()
	defer func() { cancel(); <-done }() // the controller's queue ends with its run
	var served signal.Change
	for _, d := range dynamic {
		if err := d.Subscribe(served.Announce); err != nil {
			return err
		}
	}
	_, err = services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.moved.Announce() }, DeleteFunc: func(any) { r.moved.Announce() },
	})
	if err != nil {
		return err
	}
	for {
		changed := served.Next()
		registered = register(controller, dynamic, registered)
		select {
		case <-changed:
			r.moved.Announce()
		case <-ctx.Done():
			return nil
		}
	}
}

// register registers the dynamic groups served now, and removes those that went.
func register(
	controller autoregister.AutoAPIServiceRegistration, dynamic []controlplane.DynamicGroups, before map[string]bool,
) map[string]bool {
	now := map[string]bool{}
	for _, d := range dynamic {
		for _, gv := range d.GroupVersions() {
			service := apiService(gv)
			now[service.Name] = true
			controller.AddAPIServiceToSync(service)
		}
	}
	for name := range before {
		if !now[name] {
			controller.RemoveAPIServiceToSync(name)
		}
	}
	return now
}

// localOnly leaves out the groups of other servers.
func localOnly(all []controlplane.DynamicGroups) []controlplane.DynamicGroups {
	return slices.DeleteFunc(slices.Clone(all), func(d controlplane.DynamicGroups) bool {
		_, remote := d.(*remotes)
		return remote
	})
}

// nameOf is the name of a group version's APIService.
func nameOf(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// apiService is the APIService of a group version that the plane serves.
func apiService(gv controlplane.GroupVersion) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(schema.GroupVersion{Group: gv.Group, Version: gv.Version})},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version,
			GroupPriorityMinimum: gv.GroupPriority, VersionPriority: gv.VersionPriority,
		},
	}
}
