package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// allocation gives cluster IPs and node ports to Services of one plane that ask for none,
// and refuses those that are out of range or taken. It is an admission plugin, which
// mutates before the rules of Services are checked. Services that it has not seen yet in
// its cache may have what another one asks for by name: nothing is given to two by itself.
type allocation struct {
	*admission.Handler
	addresses *clusterIPs // nil: none are given
	ports     *nodePorts  // nil: none are given
	informers informers.SharedInformerFactory
	services  cache.SharedIndexInformer
}

var (
	_ admission.MutationInterface                  = &allocation{}
	_ admission.InitializationValidator            = &allocation{}
	_ initializer.WantsExternalKubeInformerFactory = &allocation{}
)

// newAllocation reads the fields of Services. It returns nil if both are empty.
func newAllocation(network, ports string) (*allocation, error) {
	if network == "" && ports == "" {
		return nil, nil
	}
	a := &allocation{Handler: admission.NewHandler(admission.Create, admission.Update)}
	var errs [2]error
	if network != "" {
		a.addresses, errs[0] = newClusterIPs(network)
	}
	if ports != "" {
		a.ports, errs[1] = newNodePorts(ports)
	}
	return a, errors.Join(errs[:]...)
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (a *allocation) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	a.informers = f
}

// The indexes of what Services have.
const byClusterIP, byNodePort = "clusterIP", "nodePort"

// ValidateInitialization implements admission.InitializationValidator.
func (a *allocation) ValidateInitialization() error {
	a.services = a.informers.Core().V1().Services().Informer()
	return a.services.AddIndexers(cache.Indexers{
		byClusterIP: func(o any) ([]string, error) {
			if s, ok := o.(*corev1.Service); ok {
				return s.Spec.ClusterIPs, nil
			}
			return nil, nil
		},
		byNodePort: func(o any) ([]string, error) {
			var all []string
			if s, ok := o.(*corev1.Service); ok {
				for _, p := range s.Spec.Ports {
					all = append(all, strconv.Itoa(int(p.NodePort)))
				}
			}
			return all, nil
		},
	})
}

// Admit implements admission.MutationInterface.
func (a *allocation) Admit(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	s, ok := attributes.GetObject().(*corev1.Service)
	if !ok || attributes.GetSubresource() != "" || !hasClusterIP(s) {
		return nil
	}
	old, ok := attributes.GetOldObject().(*corev1.Service)
	if !ok {
		old = &corev1.Service{}
	}
	if err := a.filled(ctx); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("service %s: %w", attributes.GetName(), err))
	}
	g := giving{Service: s, old: old, dryRun: attributes.IsDryRun(), taken: a.taken(attributes.GetNamespace(), attributes.GetName())}
	var errs field.ErrorList
	for _, give := range []func(giving) (*field.Error, error){a.addresses.give, a.ports.give} {
		invalid, err := give(g)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		if invalid != nil {
			errs = append(errs, invalid)
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), attributes.GetName(), errs)
	}
	return nil
}

// filled waits for the cache of Services.
func (a *allocation) filled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lag)
	defer cancel()
	select {
	case <-a.services.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the addresses of others are not read yet: %w", context.Cause(ctx))
	}
}

// lag is how long the cache of Services may be behind. What was given and is missing in it
// longer belongs to a Service that was refused.
const lag = 10 * time.Second

// giving is one Service that is written.
type giving struct {
	*corev1.Service
	old    *corev1.Service // before an update, or empty
	dryRun bool
	// taken tells whether another Service has the value in an index.
	taken func(index, value string) bool
}

// taken looks for other Services than the named one.
func (a *allocation) taken(namespace, name string) func(index, value string) bool {
	return func(index, value string) bool {
		all, err := a.services.GetIndexer().ByIndex(index, value)
		return err == nil && slices.ContainsFunc(all, func(o any) bool { // the indexes exist
			s, ok := o.(*corev1.Service)
			return ok && (s.Namespace != namespace || s.Name != name)
		})
	}
}
