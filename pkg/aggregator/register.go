package aggregator

import (
	"context"
	"errors"
	"fmt"

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
}

// run registers what the plane always serves, follows what comes and goes, and
// ends with the context.
func (r *registration) run(ctx context.Context, p *controlplane.Plane) error {
	client, err := clientset.NewForConfig(p.Config())
	if err != nil {
		return err
	}
	controller := autoregister.NewAutoRegisterController(r.informers.Apiregistration().V1().APIServices(), client.ApiregistrationV1())
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
	for _, d := range p.Dynamic() {
		err := d.Subscribe(func() {
			select {
			case changed <- struct{}{}:
			default: // a change is waiting already
			}
		})
		if err != nil {
			return err
		}
	}
	for {
		registered = follow(controller, p.Dynamic(), registered)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// await returns when every group version served now is registered, so that
// unaggregated discovery is complete.
func (r *registration) await(ctx context.Context, p *controlplane.Plane) (err error) {
	services := r.informers.Apiregistration().V1().APIServices()
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // look once before the first event
	handler, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		select {
		case changed <- struct{}{}:
		default: // a look is due already
		}
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Informer().RemoveEventHandler(handler)) }()
	wanted := p.GroupVersions()
	for _, d := range p.Dynamic() {
		wanted = append(wanted, d.GroupVersions()...)
	}
	for {
		missing := ""
		for _, gv := range wanted {
			name := apiService(gv).Name
			if _, err := services.Lister().Get(name); err != nil && gv.Group != apiregistrationv1.GroupName {
				missing = name
			}
		}
		if missing == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s was not registered: %w", missing, context.Cause(ctx))
		}
	}
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
