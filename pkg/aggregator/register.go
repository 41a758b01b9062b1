package aggregator

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// registration keeps a local APIService for every group version of the plane.
type registration struct {
	informers externalversions.SharedInformerFactory
	asked     func()
	wanted    chan struct{} // closed when somebody asked
	begun     chan struct{} // closed when it can be asked for
	complete  chan struct{} // closed when every group version is registered
}

func newRegistration() *registration {
	r := &registration{wanted: make(chan struct{}), begun: make(chan struct{}), complete: make(chan struct{})}
	r.asked = sync.OnceFunc(func() { close(r.wanted) })
	return r
}

func (r *registration) await(ctx context.Context) error {
	r.asked()
	select {
	case <-r.complete:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("APIServices of the plane's groups were not registered: %w", context.Cause(ctx))
	}
}

// run registers what the plane always serves, follows what comes and goes, and
// ends with the context.
func (r *registration) run(ctx context.Context, p *controlplane.Plane) error {
	close(r.begun)
	select {
	case <-r.wanted:
	case <-ctx.Done():
		return nil
	}
	client, err := clientset.NewForConfig(own(p.Config()))
	if err != nil {
		return err
	}
	services := r.informers.Apiregistration().V1().APIServices()
	controller := autoregister.NewAutoRegisterController(services, client.ApiregistrationV1())
	for _, gv := range p.GroupVersions() {
		if gv.Group == apiregistrationv1.GroupName {
			continue // upstream's handler lists its own group by itself
		}
		controller.AddAPIServiceToSyncOnStart(apiService(gv))
	}
	// What is wanted must be known before the controller runs: it deletes the
	// registrations of an earlier run that nobody wants.
	registered := follow(controller, p.Dynamic(), nil)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.Run(1, ctx.Done())
	}()
	defer func() { cancel(); <-done }() // the controller's queue ends with its run
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default: // a look is due already
		}
	}
	for _, d := range p.Dynamic() {
		if err := d.Subscribe(signal); err != nil {
			return err
		}
	}
	handler, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { signal() }})
	if err != nil {
		return err
	}
	for complete := false; ; {
		registered = follow(controller, p.Dynamic(), registered)
		if !complete && r.has(p) {
			complete = true
			close(r.complete)
			if err := services.Informer().RemoveEventHandler(handler); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// has tells whether every group version served now is registered.
func (r *registration) has(p *controlplane.Plane) bool {
	wanted := p.GroupVersions()
	for _, d := range p.Dynamic() {
		wanted = append(wanted, d.GroupVersions()...)
	}
	lister := r.informers.Apiregistration().V1().APIServices().Lister()
	return !slices.ContainsFunc(wanted, func(gv controlplane.GroupVersion) bool {
		_, err := lister.Get(apiService(gv).Name)
		return err != nil && gv.Group != apiregistrationv1.GroupName
	})
}

// follow registers the dynamic groups served now, and removes those that went.
func follow(
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

func apiService(gv controlplane.GroupVersion) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%s", gv.Version, gv.Group)},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version,
			GroupPriorityMinimum: gv.GroupPriority, VersionPriority: gv.VersionPriority,
		},
	}
}
